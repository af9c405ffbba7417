"""Rows of dictionaries as a report."""

LINES = []


def as_text(rows):
    """Columns side by side."""
    LINES.clear()
    header = list(rows[0]) if rows else []
    table = [header]
    for row in rows:
        cells = []
        for key in header:
            value = row[key]
            if value is None:
                cells.append("-")
            elif isinstance(value, float):
                cells.append(f"{value:.2f}")
            else:
                cells.append(str(value))
        table.append(cells)
    widths = [max(len(cells[at]) for cells in table) for at in range(len(header))]
    for cells in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths))
        LINES.append(line.rstrip())
    return "\n".join(LINES)


def as_csv(rows):
    """Commas between, and quotes where a value has one."""
    LINES.clear()
    header = list(rows[0]) if rows else []
    LINES.append(",".join(header))
    for row in rows:
        cells = []
        for key in header:
            value = row[key]
            if value is None:
                text = "-"
            elif isinstance(value, float):
                text = f"{value:.2f}"
            else:
                text = str(value)
            if "," in text or '"' in text:
                text = '"' + text.replace('"', '""') + '"'
            cells.append(text)
        LINES.append(",".join(cells))
    return "\n".join(LINES)


def as_markdown(rows):
    """A table with bars."""
    LINES.clear()
    header = list(rows[0]) if rows else []
    LINES.append("| " + " | ".join(header) + " |")
    LINES.append("|" + "|".join("---" for _ in header) + "|")
    for row in rows:
        cells = []
        for key in header:
            value = row[key]
            if value is None:
                cells.append("-")
            elif isinstance(value, float):
                cells.append(f"{value:.2f}")
            else:
                cells.append(str(value))
        LINES.append("| " + " | ".join(cells) + " |")
    return "\n".join(LINES)
