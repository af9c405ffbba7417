"""Storage of trials: a journal per session while it runs, then tables in one DuckDB file.

    journal, recorder, tracer, run_folder    files that a trial writes while it runs
    records, codec, rows                     records, as JSON and as Arrow
    schema, views, migrations, database      the DuckDB file
    store, writer, ingest                    the single writer, and the import of journals
    load, queries, names, dataframes         reading
    versions, subjects, looks, plans         experiments, comparisons, interim analyses
    export, imports, merge, deletion         files, and other programs' formats

A journal is written without DuckDB. Only this package contains SQL.
"""
