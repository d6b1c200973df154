from pathlib import Path

from heisd_ros.offline.benchmark_table import fill_block, markdown
from heisd_ros.offline.results import read_results

DOCS = Path(__file__).parents[2] / "docs"


def test_tables_of_the_page_are_those_of_the_results_file():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    results = read_results(DOCS / "results" / "small.json")
    # python -m heisd_ros.offline.benchmark_table docs/results/small.json \
    #     --page docs/benchmarks.md --block small
    assert fill_block(page, "small", markdown(results)) == page
