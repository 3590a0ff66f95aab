"""A job in an environment with auto-attach; it has sidecars of its own later."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from querypulse import Sidecar, attach
from querypulse.sidecar.sidecar import SIDECARS


def hooks(_=None):
    """Whether this process waits for Spark, and whether it has a sidecar; it imports nothing of ours."""
    waits = any(type(finder).__name__ == "ImportHook" for finder in sys.meta_path)
    return f"{waits} {'querypulse.sidecar' in sys.modules}"


spark = SparkSession.builder.getOrCreate()
automatic = SIDECARS.find(spark.sparkContext)
print("driver", hooks(), automatic.settings.app_name, flush=True)
print("worker", spark.range(1).select(udf(hooks)("id")).first()[0], flush=True)
print("same", SIDECARS.find(SparkSession.getActiveSession().sparkContext) is automatic, flush=True)
own = attach(spark, app_name="own")
print("own", own.settings.app_name, automatic.closed, SIDECARS.find(spark.sparkContext) is own)
spark.stop()

spark = SparkSession.builder.getOrCreate()
second = SIDECARS.find(spark.sparkContext)
by_hand = Sidecar(app_name="by hand")
spark.streams.addListener(by_hand.listener)
print("hand", second.closed, SIDECARS.find(spark.sparkContext) is by_hand, flush=True)
