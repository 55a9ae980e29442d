"""One tree, node by node: commands, assignments, redirections, and the functions that a line defines.

Without recursion: a text of 64 KB may nest 30,000 deep.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import tree_sitter

from corral.policy.shell.finding import Code, Findings
from corral.policy.shell.heredoc import find_backquotes, read_heredoc, unescape_backquoted
from corral.policy.shell.model import NO_STDIN, SOME_STDIN, UNKNOWN_WORDS, Stdin, Word
from corral.policy.shell.variable import look_for_evaluated, read_assignment
from corral.policy.shell.word import SUBSTITUTION, read_word

Node = tree_sitter.Node

_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_WITH_CODE = frozenset(
    (
        *(
            "string",
            "concatenation",
            "command_substitution",
            "process_substitution",
            "expansion",
            "arithmetic_expansion",
        ),
        *("array", "subscript", "brace_expression", "translated_string"),
    )
)
_EVALUATED = frozenset(
    (
        *("arithmetic_expansion", "expansion", "subscript", "binary_expression", "unary_expression"),
        *("postfix_expression", "ternary_expression", "parenthesized_expression", "compound_statement"),
        "c_style_for_statement",
    )
)
# In the place of a program these are the shell's own words, which the tree has taken for a name.
_LEADING = frozenset(("!", "{", "if", "then", "else", "elif", "while", "until", "do"))
_RESERVED = _LEADING | frozenset(("}", "fi", "done", "esac", "case", "for", "select", "function", "in", "[[", "]]"))
_PREFIXES = frozenset(("time", "coproc"))
_HOST = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/([^/]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[|$)")
_ENDS_TEST = frozenset(("|", "||", "&&", "&", "<", ">", ";"))
_COMMENT_AFTER = b" \t\n;|&()<>"


class _Walk:
    def __init__(self, source: bytes, code: Code, findings: Findings) -> None:
        self.source = source
        self.within = code.within
        self.findings = findings
        # The command that carries a text of expansions is ours.
        self.skipped = 1 if code.expansions_only else 0
        self.functions: set[str] = set()
        self.stack: list[tuple[Node, Stdin]] = []
        self.readers: dict[str, Callable[[Node, Stdin], None]] = {
            "command": self.read_command,
            "redirected_statement": self.read_redirected,
            "pipeline": self.read_pipeline,
            "function_definition": self.read_function,
            "variable_assignment": self.read_variable,
            "declaration_command": self.read_declaration,
            "unset_command": self.read_declaration,
            "test_command": self.read_test,
            "command_substitution": self.read_substitution,
            "file_redirect": self.read_stray_redirect,
            "heredoc_redirect": self.read_stray_redirect,
            "herestring_redirect": self.read_stray_redirect,
            "comment": self.check_comment,
            "expansion": self.read_expansion,
            "raw_string": self.read_raw,
            **dict.fromkeys(("word", "regex", "extglob_pattern", "string_content"), self.read_leaf),
        }

    def run(self, root: Node, stdin: Stdin) -> None:
        stack = self.stack
        stack.append((root, stdin))
        readers = self.readers.get
        while stack:
            node, stdin = stack.pop()
            reader = readers(node.type)
            if reader is not None:
                reader(node, stdin)
            else:
                self.push(node.named_children, stdin)

    def push(self, nodes: list[Node], stdin: Stdin) -> None:
        for node in reversed(nodes):
            self.stack.append((node, stdin))

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def read_command(self, node: Node, stdin: Stdin, extra: list[Word] | None = None) -> None:
        words: list[Word] = []
        inner: list[Node] = []
        assignments: list[tuple[str, Word]] = []
        source = self.source
        end = -1
        plain = False
        for child in node.children:
            kind = child.type
            if kind in _REDIRECTS:
                added, given = self.read_redirect(child)
                words += added
                stdin = given or stdin
                end = -1
                continue
            if kind == "variable_assignment":
                assignments.append(self.split_assignment(child))
                continue
            if kind == "command_name" and child.child_count == 1:
                child = child.children[0]
                kind = child.type
                plain = kind == "word"
            start = child.start_byte
            if start == end:  # two pieces without a blank: one word to the shell
                self.findings.has_error = True
                words[-1] = UNKNOWN_WORDS
                inner.append(child)
            elif child.is_named:
                if kind == "word" and source[start : start + 1] == b"#":
                    self.findings.has_error = True  # to the shell, the rest of the line is a comment
                words.append(word := read_word(child, source))
                # What is known before a run has nothing in it that runs.
                if word.text is None and kind in _WITH_CODE:
                    inner.append(child)
            else:
                words.append(Word(kind))  # `==` and the like
            end = child.end_byte
        if inner:
            self.push(inner, stdin)
        words += extra or ()
        for name, value in assignments:
            read_assignment(name, value, self.within, self.findings)
        if self.skipped:
            self.skipped -= 1
        elif words:
            self.start(words, stdin, plain=plain)

    def start(self, words: list[Word], stdin: Stdin, *, plain: bool) -> None:
        """A command's words, once words of the shell's own are taken from its front."""
        while plain and words and words[0].text in _RESERVED | _PREFIXES:
            if words[0].text in _RESERVED:
                self.findings.has_error = True
                if words[0].text not in _LEADING:
                    return
            words = words[1:]
            while words and words[0].text in ("-p", "--"):
                words = words[1:]
        if not words or (plain and words[0].text in self.functions):
            return
        self.findings.run(words, self.within, stdin)

    def read_redirected(self, node: Node, stdin: Stdin) -> None:
        body: Node | None = None
        extra: list[Word] = []
        for child in node.children:
            if child.type in _REDIRECTS:
                added, given = self.read_redirect(child)
                extra += added
                stdin = given or stdin
            elif child.is_named and body is None:
                body = child
            elif child.is_named:
                self.findings.has_error = True
                self.push([child], stdin)
        if body is not None and body.type == "command":
            self.read_command(body, stdin, extra)
            return
        if extra:  # the words behind a redirection that stands alone are the command
            self.start(extra, stdin, plain=True)
        if body is not None and body.type == "pipeline":
            # The redirection belongs to the last of them, and its input is the pipe unless this says otherwise.
            self.read_pipeline(body, NO_STDIN, last=stdin)
        elif body is not None:
            self.push([body], stdin)

    def read_pipeline(self, node: Node, stdin: Stdin, last: Stdin | None = None) -> None:
        parts = node.named_children
        for number in range(len(parts) - 1, -1, -1):
            given = stdin if number == 0 else SOME_STDIN
            if number == len(parts) - 1 and last is not None and last.given:
                given = last
            self.stack.append((parts[number], given))

    def read_function(self, node: Node, _stdin: Stdin) -> None:
        # Known from here on, unless it is made where its name may not reach the rest of the line.
        parts = node.named_children
        parent = node.parent
        name = self.text(parts[0])
        if parent is not None and parent.type == "program" and not self.within:
            self.functions.add(name)
        for part in parts[1:]:
            if part.type in _REDIRECTS:
                self.read_redirect(part)
            else:
                self.push([part], SOME_STDIN)

    def split_assignment(self, node: Node) -> tuple[str, Word]:
        parts = node.children
        self.push([part for part in parts if part.type in _WITH_CODE], NO_STDIN)
        value = parts[-1] if len(parts) > 2 else None
        name = self.text(parts[0])
        # `./a=b` is an assignment to the tree and a program to the shell.
        if len(parts) > 3 or not _NAME.match(name):
            self.findings.has_error = True
        if (
            value is not None
            and value.type == "simple_expansion"
            and b" " in self.source[node.start_byte : node.end_byte]
        ):
            self.findings.has_error = True  # `A=$ x`: a `$` and a program
        if value is None or value.type == "array":
            text = Word("") if value is None else self.read_array(value)
        else:
            text = read_word(value, self.source)
        return name, text

    def read_array(self, node: Node) -> Word:
        for child in node.named_children:
            word = read_word(child, self.source)
            if word.text is not None:
                look_for_evaluated(word.text, self.within, self.findings)
        return UNKNOWN_WORDS

    def read_variable(self, node: Node, _stdin: Stdin) -> None:
        name, value = self.split_assignment(node)
        read_assignment(name, value, self.within, self.findings)

    def read_declaration(self, node: Node, _stdin: Stdin) -> None:
        """`declare`, `export`, `unset` and their kin, which the tree sets apart from commands."""
        name, *rest = node.children
        words = [Word(self.text(name))]
        for child in rest:
            if child.type == "variable_assignment":
                variable, value = self.split_assignment(child)
                if value.text is None:
                    read_assignment(variable, value, self.within, self.findings)
                words.append(Word(None if value.text is None else f"{variable}={value.text}"))
            else:
                words.append(read_word(child, self.source))
                self.push([child] if child.type in _WITH_CODE else [], NO_STDIN)
        if name.type == "unset":
            self.functions.clear()
        self.findings.run(words, self.within)

    def read_test(self, node: Node, stdin: Stdin) -> None:
        """`[ ... ]` and `[[ ... ]]`: programs of their own they are not, but they evaluate names and numbers."""
        opening = node.children[0]
        if not self.source[opening.end_byte : opening.end_byte + 1].isspace():
            self.findings.has_error = True  # part of a longer name
        single = opening.type == "["
        nodes = [node]
        while nodes:
            node = nodes.pop()
            if node.type in ("raw_string", "string", "concatenation", "word", "ansi_c_string"):
                word = read_word(node, self.source)
                if word.text is not None and "[" in word.text:
                    look_for_evaluated(word.text, self.within, self.findings)
            if node.type in ("command_substitution", "process_substitution", "expansion"):
                self.push([node], stdin)
            else:
                nodes += node.children
            if single and node.type in _ENDS_TEST:
                self.findings.has_error = True  # to the shell, `[` and its arguments end here

    def read_substitution(self, node: Node, stdin: Stdin) -> None:
        if self.source[node.start_byte : node.start_byte + 1] != b"`":
            self.push(node.named_children, stdin)
            return
        text = self.text(node)[1:-1]
        if re.search(r"(?<!\\)(?:\\\\)*`", text):
            self.findings.has_error = True  # the shell ends it there, whatever stands around
        if "\\" in text:
            self.findings.read(unescape_backquoted(text), self.within, stdin)
        else:
            self.push(node.named_children, stdin)

    def read_expansion(self, node: Node, stdin: Stdin) -> None:
        children = node.children
        if any(child.type in ("@", "P") for child in children) and self.text(node).endswith("@P}"):
            self.findings.tell_unknown("a value is expanded as a prompt")
        self.push([child for child in children if child.is_named], stdin)

    def read_leaf(self, node: Node, _stdin: Stdin) -> None:
        """A substitution that the tree has taken for plain text."""
        if node.named_child_count:
            self.push(node.named_children, NO_STDIN)
        elif SUBSTITUTION.search(text := self.text(node)):
            self.findings.read(text, self.within, expansions_only=True)

    def read_raw(self, node: Node, _stdin: Stdin) -> None:
        """Single quotes protect nothing inside arithmetic, subscripts and some expansions."""
        if node.parent is not None and node.parent.type in _EVALUATED:
            self.read_leaf(node, NO_STDIN)

    def read_stray_redirect(self, node: Node, stdin: Stdin) -> None:
        words, _ = self.read_redirect(node)
        if words:
            self.start(words, stdin, plain=True)

    def check_comment(self, node: Node, _stdin: Stdin) -> None:
        start = node.start_byte
        if start and self.source[start - 1] not in _COMMENT_AFTER:
            self.findings.has_error = True

    def read_redirect(self, node: Node) -> tuple[list[Word], Stdin | None]:
        """The words behind its target, which are the command's, and the input that it gives."""
        if node.type == "heredoc_redirect":
            return self.read_document(node)
        parts = node.children
        operator = descriptor = ""
        first: Node | None = None
        words: list[Word] = []
        for part in parts:
            if not part.is_named:
                operator = operator or part.type
            elif part.type == "file_descriptor":
                descriptor = self.text(part)
            else:
                first = first or part
                words.append(word := read_word(part, self.source))
                if word.text is None:
                    self.stack.append((part, NO_STDIN))
        if first is None:
            return [], None
        target = words.pop(0)
        if node.type == "herestring_redirect":
            return words, Stdin(given=True, text=None if target.text is None else f"{target.text}\n")
        return words, self.read_target(operator, first, target, descriptor)

    def read_target(self, operator: str, node: Node, target: Word, descriptor: str) -> Stdin | None:
        if target.text is not None and (host := _HOST.fullmatch(target.text)):
            self.findings.hosts[host[1]] = None
            return SOME_STDIN if "<" in operator else None
        if operator == "<":
            return None if descriptor not in ("", "0") else Stdin(given=True, file=target.text)
        if operator == "<&":
            return SOME_STDIN
        if operator.endswith("&-") or (operator == ">&" and target.text is not None and target.text.isdigit()):
            return None
        if node.type != "process_substitution":
            self.findings.write(target)
        return None

    def read_document(self, node: Node) -> tuple[list[Word], Stdin | None]:
        document = read_heredoc(node, self.source)
        words: list[Word] = []
        for child in node.named_children:
            if child.type == "heredoc_body":
                # A quoted delimiter makes it plain text, and the tree has no nodes in it then.
                self.push(child.named_children, NO_STDIN)
            elif child.type in _REDIRECTS:
                words += self.read_redirect(child)[0]
            elif child.type in ("pipeline", "list"):
                self.push_piped(child)
            elif child.type not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                self.read_rest(child, words)
        if document is None:
            self.findings.has_error = True
            return words, SOME_STDIN
        if document.expands and b"`" in document.raw:
            codes, closed = find_backquotes(document.raw.decode("utf-8", "replace"))
            self.findings.has_error = self.findings.has_error or not closed
            for code in codes:
                self.findings.read(code, self.within)
        return words, Stdin(given=True, text=document.text)

    def push_piped(self, node: Node) -> None:
        """What follows a here-document's word on its line: `| sh`, `&& ls`. Only a pipe gives input."""
        piped = node.child_count > 0 and node.children[0].type in ("|", "|&")
        self.push(node.named_children, SOME_STDIN if piped else NO_STDIN)

    def read_rest(self, node: Node, words: list[Word]) -> None:
        previous = node.prev_sibling
        if node.type in ("word", "string", "raw_string", "concatenation", "number", "simple_expansion", "expansion"):
            words.append(read_word(node, self.source))
            self.push([node] if node.type in _WITH_CODE else [], NO_STDIN)
        else:
            piped = previous is not None and previous.type in ("|", "|&")
            self.push([node], SOME_STDIN if piped else NO_STDIN)


def walk(root: Node, source: bytes, code: Code, findings: Findings) -> None:
    """Add what the tree of one piece of code would run."""
    _Walk(source, code, findings).run(root, code.stdin)
