"""The dashboard: one page that shows the server and its network functions, and follows them. docs/dashboard.md.

Data flows one way: `snapshot` (what is so) -> `lanes`, `progress`, `news` (how it is said) -> `render` (HTML) ->
`board` (what changed) -> `routes` (the page and its stream). Nothing here writes anything.
"""
