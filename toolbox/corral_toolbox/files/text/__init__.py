"""Text as the file tools see it: encodings and line ends, making control characters visible, diffs, similar regions."""
