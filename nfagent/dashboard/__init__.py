"""The dashboard: one page that shows the server and its network functions live. docs/dashboard.md.

Data flows one way: `snapshot` (the state) -> `lanes`, `progress`, `news` (its wording) -> `render` (HTML) -> `board`
(changes) -> `routes` (the page and its stream). Nothing here writes anything.
"""
