"""Key groups are spread evenly, because Spark hashes as assumed."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism.spark.partitioning import label


def test_sparks_hash_of_a_label_is_the_key_group(spark: SparkSession) -> None:
    labels = [(group, label(group)) for group in (*range(300), 2**15 - 1)]
    rows = spark.createDataFrame(labels, "key_group int, label int").select("key_group", F.hash("label")).collect()
    assert [row[0] for row in rows] == [row[1] for row in rows]
