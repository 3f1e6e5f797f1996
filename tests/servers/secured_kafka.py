"""A Kafka broker that asks for credentials: SASL with and without TLS, beside the listener without either."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.discovery.servers import NoServerError, free_port
from tests.servers.kafka import Broker

USER, PASSWORD = "ann", 'sword"fish\\ 0123;'
"""With characters that are special in the configuration of JAAS."""
STORE_PASSWORD = "store-password"


def jaas(module: str, **options: str) -> str:
    """The setting ``sasl.jaas.config`` of a Java client."""
    values = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    pairs = "".join(f' {name}="{value}"' for name, value in values.items())
    return f"org.apache.kafka.common.security.{module}LoginModule required{pairs};"


def _settings() -> dict[str, object]:
    settings: dict[str, object] = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{name}" for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
        )
        + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.location": "broker.p12",  # in the folder in which the broker runs
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }
    plain = jaas("plain.Plain", **{f"user_{USER}": PASSWORD}).replace("\\", "\\\\")  # of a properties file
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        settings[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = jaas("scram.Scram")
    return settings


class SecuredBroker(Broker):
    """The user USER with PASSWORD; PLAIN and SCRAM-SHA-256.

    :ivar sasl_address: SASL_PLAINTEXT, for ``bootstrap.servers``
    :ivar tls_address: SASL_SSL; the certificate of the broker is in *certificate*
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        sasl, tls = free_port(), free_port()
        self.sasl_address, self.tls_address = f"{host}:{sasl}", f"{host}:{tls}"
        super().__init__(host, _settings(), {"SASL_PLAINTEXT": sasl, "SASL_SSL": tls}, {USER: PASSWORD})
        self.certificate = self._certificate(host)

    def _certificate(self, host: str) -> Path:
        """Make a key of the broker, and return its certificate."""
        store = ["-keystore", "broker.p12", "-storepass", STORE_PASSWORD, "-alias", "broker"]
        for arguments in (
            ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=broker", "-ext", f"SAN=ip:{host}", "-validity", "2"],
            ["-exportcert", "-rfc", "-file", "broker.pem"],
        ):
            made = subprocess.run(
                ["keytool", *arguments, *store], cwd=self.folder, capture_output=True, text=True, check=False
            )
            if made.returncode != 0:
                raise NoServerError(f"keytool fails: {made.stdout[-300:]}")
        return self.folder / "broker.pem"
