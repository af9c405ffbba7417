"""`assay warmup`: compile ahead of time."""

from assay.cli.output import Show, compiling_shown, say, say_json

__all__ = ["warmup"]


def warmup(*, show: Show = Show()) -> int:
    """Compile the world engine now, so that no later command has to wait for it.

    The result is kept in your cache folder, for this version of assay and this kind of
    processor.

    For example:

        assay warmup
    """
    with compiling_shown(show):
        from assay.crafter import warmup as compile_engine

        done = compile_engine()
    where = None if done.directory is None else str(done.directory)
    if show.json:
        seconds = round(done.seconds, 3)
        say_json({"compiled": done.compiled, "seconds": seconds, "directory": where})
    elif not show.quiet:
        what = (
            "compiled the world engine" if done.compiled else "the engine was compiled before"
        )
        say(f"{what}; ready in {done.seconds:.1f} s")
        say(f"cache: {where or 'none, for no directory could be written to'}")
    return 0
