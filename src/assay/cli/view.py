"""`assay view` and `assay verify`: pages in a browser, and proofs that records are true."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, Flag, open_store
from assay.cli.output import (
    OutputOptions,
    print_error,
    print_json,
    print_line,
    show_compilation,
    show_progress_bar,
)
from assay.cli.serve import warn_about_exposure
from assay.cli.tables import Whole
from assay.cli.traces import print_verifications
from assay.core.text import printable
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.report.viewer.server import RunningViewer


def view(
    *paths: str,
    database: Database = DEFAULT_DATABASE,
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8905,
    host: str = "127.0.0.1",
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    open: bool = True,
    export: Annotated[Path | None, Parameter(show_default=False)] = None,
    force: Flag = False,
    replay_code: Flag = False,
    budget: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show runs, episodes and comparisons in a browser until Ctrl-C.

    The printed address contains a token, without which nothing can be read. A run that is in
    progress can be watched: the database is never locked.

    For example:

        assay view
        assay view best
        assay view latest --export report.html
        assay view logs/2026-10-01_crafter.eval

    Args:
        paths: Run or episode to open first, or two episodes; or logs and traces in files,
            which are opened instead of the database.
        database: Database to show.
        port: Port to listen on; 0 picks a free port.
        host: Address to listen on; addresses other than loopback are reachable from other
            machines.
        allow_host: Additional host name that browsers may use for this server. May be
            repeated.
        open: Open the page in a browser.
        export: Write episodes and their comparison to this HTML file, which needs no server,
            instead of serving.
        force: With --export: replace an existing file.
        replay_code: Allow user code that the database names to run, to replay its episodes.
        budget: Maximum cost in dollars of models that continue an episode in a page.
        show: Output options.
    """
    with show_compilation(show):
        from assay.api.viewer import opened, serve_viewer
        from assay.crafter.world import warmup
        from assay.report.viewer.server import ViewerSettings

        warmup()
        if export is not None:
            return _export(paths, export, database, show, force=force)

    def announce(viewer: "RunningViewer") -> None:
        if not viewer.settings.is_local:
            warn_about_exposure(host, "a token", has_secret=True, kind="token")
        _announce(viewer, show)
        if open and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(viewer.url)

    with opened(paths, database, replay_code=replay_code, budget_usd=budget) as found:
        library, start = found
        settings = ViewerSettings(
            host=host,
            port=port,
            allowed_hosts=tuple(allow_host or ()),
            start=start or "#/",
            budget_usd=budget,
        )
        serve_viewer(library, settings, announce)
    if not (show.quiet or show.json):
        print_line("stopped")
    return 0


def _export(
    names: tuple[str, ...], path: Path, database: Path, show: OutputOptions, *, force: bool
) -> int:
    from assay.api.viewer import export_view

    made = export_view(*names, output=path, force=force, database=database)
    if show.json:
        print_json({"page": str(made.path), "episodes": made.episodes, "bytes": made.size})
    elif show.quiet:
        print_line(str(made.path))
    else:
        print_line(f"page: {made.path} ({made.episodes} episodes, {made.size / 1e6:.1f} MB)")
        print_line(f"check it: assay verify {made.path}")
    return 0


def _announce(viewer: "RunningViewer", show: OutputOptions) -> None:
    if show.json:
        print_json({"address": viewer.address, "url": viewer.url, "pid": os.getpid()})
    elif show.quiet:
        print_line(viewer.url)
    else:
        print_line(f"view: {viewer.url} (Ctrl-C ends it)")


def verify(path: Path, *, show: OutputOptions = OutputOptions()) -> int:
    """Verify a database, a folder of traces, a log, or a page of 'assay view'.

    Episodes are replayed and compared step by step; no model is called. A page is rebuilt
    from the record inside it and compared as a whole. The exit code is 1 if anything differs.

    For example:

        assay verify traces.duckdb
        assay verify report.html

    Args:
        path: The file or folder.
        show: Output options.
    """
    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}")
    with show_compilation(show):
        from assay.api import traces
        from assay.crafter.world import warmup

        warmup()
    if path.suffix == ".html":
        return _verify_page(path, show)
    if path.suffix == ".duckdb":
        with show_progress_bar(show, "verifying") as progress:
            return print_verifications(
                traces.verify(database=open_store(path, show), progress=progress), show
            )
    with (
        traces.open_traces([path]) as (store, damaged),
        show_progress_bar(show, "verifying") as progress,
    ):
        for source, reason in damaged:
            print_error(f"{source} {reason}")
        return max(
            print_verifications(traces.verify(database=store, progress=progress), show),
            bool(damaged),
        )


def _verify_page(path: Path, show: OutputOptions) -> int:
    from assay.api.viewer import verify_page

    found = verify_page(path)
    if show.json:
        print_json(
            {
                "same": found.is_same,
                "difference": found.difference,
                "repeated": list(found.repeated),
                "episodes": {episode.session_id: episode.finding for episode in found.episodes},
            }
        )
        return 0 if found.is_same else 1
    code = print_verifications(found.episodes, show)
    if found.difference is not None:
        print_line(f"the page differs from its record at {printable(found.difference)}")
        return 1
    if not show.quiet:
        print_line(
            "the page is what its record gives: steps, rewards, tables and figures recomputed"
        )
        for fact in found.repeated:
            print_line(f"only repeated: {printable(fact)}")
    return code
