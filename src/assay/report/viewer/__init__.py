"""The viewer: runs, episodes and comparisons in a browser.

    library       loads and replays what is stored, and keeps the last results
    episodes      one episode as values, messages and pictures
    lists         runs, worlds and their episodes
    comparisons   reports of comparisons as values
    coding        coding trials: commands, patch, tests
    live          what is new in runs in progress
    play          people play, and continue stored episodes
    modules       the files of the page, joined into one module
    export        pages in one file, with their record
    player        the episode player for notebooks
    server        the routes, and access control

Everything that a page shows is text, numbers or pixels: nothing named in a database is ever
executed by viewing it, unless the viewer was started with `--replay-code`.
"""
