import sys
print(open('lies.txt').read())
sys.stdout.buffer.write(b'\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m 10%\r100%\n\xe2\x80\xaeevil \x00 \xff\n')
