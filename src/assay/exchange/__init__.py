"""Files and other programs' formats: export, import, merge, snapshot, results, trace folders.

Everything here reads or writes a store through `traces`. Import its modules.
"""
