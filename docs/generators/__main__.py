"""Write every generated page and schema."""

from __future__ import annotations

from docs.generators.files import REPOSITORY, make_files

for path, text in make_files().items():
    (REPOSITORY / path).parent.mkdir(parents=True, exist_ok=True)
    (REPOSITORY / path).write_text(text, encoding="utf-8")
