"""Grading: what a patch comes to, by hidden tests and by a judge, and the files that say so."""

from assay.bench.grading.grading import check_gradable, grade
from assay.bench.grading.judging import Judge
from assay.bench.grading.results import read_grade, write_grade

__all__ = ["Judge", "check_gradable", "grade", "read_grade", "write_grade"]
