"""What agents did, written down: a journal per session, then tables in one DuckDB file.

    journal, recorder, tracer, run_folder    what a trial writes while it runs
    records, codec, rows                     records, as JSON and as Arrow
    schema, views, migrations, database      the DuckDB file
    store, writer, ingest                    the single writer, and what it takes in
    load, queries, names, dataframes         reading
    versions, subjects, looks, plans         what the trials mean
    export, imports, merge, deletion         files, and other programs' formats

A journal is written without DuckDB. SQL stands here alone.
"""
