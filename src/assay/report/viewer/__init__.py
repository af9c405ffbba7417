"""The viewer: runs, episodes and comparisons in a browser.

    library       loads and replays what is stored, and keeps the last results
    episodes      one episode as values, messages and pictures
    lists         runs, worlds and their episodes
    comparisons   reports of comparisons as values
    server        the routes, and who may use them

Everything that a page shows is text, numbers or pixels: nothing named in a database is ever
executed by viewing it, unless the viewer was started with `--replay-code`.
"""
