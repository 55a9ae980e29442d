"""Files stay readable in one go, functions on one screen. `python -m tests.architecture.test_size` prints the sizes."""

from __future__ import annotations

from statistics import median, quantiles

from tests.architecture.source import load_modules

MAX_FILE = 400
MAX_FUNCTION = 60


def test_no_file_is_too_long() -> None:
    assert [(m.path, len(m.code_lines)) for m in load_modules() if len(m.code_lines) > MAX_FILE] == []


def test_no_function_is_too_long() -> None:
    found = [(f"{m.path}:{name}", size) for m in load_modules() for name, size in m.functions() if size > MAX_FUNCTION]
    assert found == []


def test_sizes_are_reported() -> None:
    text = describe_sizes()
    assert text.startswith("files")
    print(text)


def describe_sizes() -> str:
    modules = [module for module in load_modules() if module.code_lines]
    files = [len(module.code_lines) for module in modules]
    functions = [size for module in modules for _, size in module.functions()]
    rows = [
        f"{name}: {len(sizes)}, median {median(sizes):.0f}, p90 {quantiles(sizes, n=10)[-1]:.0f}, largest {max(sizes)}"
        for name, sizes in (("files", files), ("functions", functions))
    ]
    largest = sorted(((len(module.code_lines), module.path) for module in modules), reverse=True)[:5]
    return "\n".join(rows + [f"  {size:4} {path}" for size, path in largest])


if __name__ == "__main__":
    print(describe_sizes())
