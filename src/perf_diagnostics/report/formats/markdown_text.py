"""Words and source text in Markdown: neither can become markup."""

from __future__ import annotations

import re

# Signs that start markup wherever they stand; an underscore does only at a word's edge.
_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_NOT_IN_SPAN = re.compile(r"[`<>&|]")
_BLOCK = re.compile(r"^(#{1,6}|[-+=>]|\d+[.)])(?=[\s=]|$)")


def md(text: str) -> str:
    """Text with every sign escaped that Markdown or HTML would take for markup.

    >>> print(md("a|b <b>*x*</b> data_wait"))
    a\\|b &lt;b&gt;\\*x\\*&lt;/b&gt; data_wait
    """
    escaped = _MARKUP.sub(lambda found: f"\\{found[0]}", text.replace("&", "&amp;"))
    escaped = escaped.replace("<", "&lt;").replace(">", "&gt;")
    return _BLOCK.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], escaped)


def md_code(text: str) -> str:
    """Source text as code; where a sign in it could end a code span or a table's cell, as an element.

    >>> print(md_code("x = x * 1.01"), md_code("a | b"))
    `x = x * 1.01` <code>a \\| b</code>
    """
    return f"<code>{md(text)}</code>" if _NOT_IN_SPAN.search(text) else f"`{text}`"
