"""Sockets, connections and the memory that clients may make the broker hold."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.config.listeners import (
    Listener,
    parse_listeners,
    parse_protocol_map,
    require_different_addresses,
    require_plaintext,
)
from tidelog.config.option import INT_MAX, ConfigType, option

_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_ANY_HOST = {"", "0.0.0.0", "::"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Where the broker listens and what a client may use of it."""

    listeners: tuple[str, ...] = option(
        "listeners",
        ("PLAINTEXT://:9092",),
        ConfigType.LIST,
        "Addresses to listen on, as NAME://host:port. An empty host is every interface, port 0 "
        "lets the system choose.",
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        None,
        ConfigType.LIST,
        "Addresses that clients are told to use, where they differ from listeners.",
    )
    listener_security_protocol_map: str = option(
        "listener.security.protocol.map",
        _PROTOCOL_MAP,
        ConfigType.STRING,
        "What each listener name stands for, as NAME:PROTOCOL pairs. Only PLAINTEXT is served.",
    )
    inter_broker_listener_name: str | None = option(
        "inter.broker.listener.name",
        None,
        ConfigType.STRING,
        "Listener that brokers use among themselves; the first PLAINTEXT one if not given.",
    )
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names",
        (),
        ConfigType.LIST,
        "Listeners of a KRaft controller. tidelog has no controller listeners and opens none of "
        "these.",
    )
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes",
        104_857_600,
        ConfigType.INT,
        "Largest request read from a socket; a larger one closes its connection.",
        minimum=1,
    )
    socket_send_buffer_bytes: int = option(
        "socket.send.buffer.bytes",
        -1,
        ConfigType.INT,
        "SO_SNDBUF of client sockets; -1 leaves it to the operating system.",
        minimum=-1,
    )
    socket_receive_buffer_bytes: int = option(
        "socket.receive.buffer.bytes",
        -1,
        ConfigType.INT,
        "SO_RCVBUF of client sockets; -1 leaves it to the operating system.",
        minimum=-1,
    )
    socket_listen_backlog_size: int = option(
        "socket.listen.backlog.size",
        50,
        ConfigType.INT,
        "Connections the operating system keeps waiting until they are accepted.",
        minimum=1,
    )
    max_connections: int = option(
        "max.connections",
        INT_MAX,
        ConfigType.INT,
        "Most connections at a time; one more is closed at once.",
        minimum=0,
        dynamic=True,
    )
    max_connection_creation_rate: int = option(
        "max.connection.creation.rate",
        INT_MAX,
        ConfigType.INT,
        "Most connections that begin in a second; more wait for their turn. Those of other brokers "
        "do not, if they have a listener of their own.",
        minimum=1,
        dynamic=True,
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        INT_MAX,
        ConfigType.INT,
        "Most connections at a time from one address.",
        minimum=0,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = option(
        "max.connections.per.ip.overrides",
        "",
        ConfigType.STRING,
        "Other limits than max.connections.per.ip for some addresses, as address:count pairs.",
        dynamic=True,
    )
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms",
        600_000,
        ConfigType.LONG,
        "A connection without a request for this long is closed.",
    )
    queued_max_requests: int = option(
        "queued.max.requests",
        500,
        ConfigType.INT,
        "Requests of one connection that may wait for their answers; after that it is not read.",
        minimum=1,
    )
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        -1,
        ConfigType.LONG,
        "Bytes of requests that may be held at a time over all connections; -1 is no limit.",
    )
    request_timeout_ms: int = option(
        "request.timeout.ms",
        30_000,
        ConfigType.INT,
        "How long this broker waits for an answer to a request of its own.",
        minimum=1,
    )
    num_network_threads: int = option(
        "num.network.threads",
        3,
        ConfigType.INT,
        "Accepted for compatibility: sockets are served by one event loop.",
        minimum=1,
        dynamic=True,
    )
    num_io_threads: int = option(
        "num.io.threads",
        8,
        ConfigType.INT,
        "Accepted for compatibility: each of log.dirs has two threads for what waits for the disk.",
        minimum=1,
        dynamic=True,
    )
    background_threads: int = option(
        "background.threads",
        10,
        ConfigType.INT,
        "Accepted for compatibility: each of log.dirs has a thread for work that nobody waits for.",
        minimum=1,
        dynamic=True,
    )
    tidelog_read_budget_bytes: int = option(
        "tidelog.read.budget.bytes",
        65_536,
        ConfigType.INT,
        "Bytes read from one busy connection before others get their turn.",
        minimum=1,
    )
    tidelog_heavy_pause_ms: int = option(
        "tidelog.heavy.pause.ms",
        2,
        ConfigType.INT,
        "Pause after each request or answer of 128 KiB or more while small records are written, so "
        "that these do not wait for the processor. 0: none.",
        minimum=0,
    )
    tidelog_response_memory_bytes: int = option(
        "tidelog.response.memory.bytes",
        268_435_456,
        ConfigType.LONG,
        "Bytes that answers not yet read by their clients and requests still being received may "
        "hold over all connections.",
        minimum=1_048_576,
    )
    tidelog_metrics_host: str = option(
        "tidelog.metrics.host",
        "127.0.0.1",
        ConfigType.STRING,
        "Address on which metrics are served. Whoever reaches it can read them.",
    )
    tidelog_metrics_port: int = option(
        "tidelog.metrics.port",
        -1,
        ConfigType.INT,
        "Port on which metrics are served to Prometheus, as http://HOST:PORT/metrics; -1: none, 0: "
        "any that is free, which the log names. `tidelog up` adds one for each further broker.",
        minimum=-1,
        maximum=65_535,
    )
    tidelog_slow_reader_timeout_ms: int = option(
        "tidelog.slow.reader.timeout.ms",
        30_000,
        ConfigType.LONG,
        "A connection that does not read a byte of its waiting answers for this long is closed.",
        minimum=1,
    )
    tidelog_shutdown_timeout_ms: int = option(
        "tidelog.shutdown.timeout.ms",
        5_000,
        ConfigType.LONG,
        "How long a stopping broker lets answers that are on their way leave.",
        minimum=0,
    )

    def __post_init__(self) -> None:
        # Each of these raises ConfigError for what it cannot make sense of.
        _ = self.bound_listeners, self.advertised, self.connection_overrides
        self._require_inter_broker_listener()

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """What to listen on: `listeners` less those that a KRaft controller would use."""
        listeners = self._without_controllers("listeners", self.listeners)
        protocols = parse_protocol_map(
            "listener.security.protocol.map", self.listener_security_protocol_map
        )
        for listener in listeners:
            require_plaintext(listener, protocols)
        if not listeners:
            raise ConfigError("listeners is '' but must name at least one address for clients")
        require_different_addresses(listeners)
        return listeners

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """What clients are told, one for each bound listener and in the same order.

        A host that stands for every interface is left empty, to be filled in with this
        machine's name by whoever binds the socket; so is the port if it is 0.
        """
        advertised = {
            bound.name: Listener(
                bound.name, "" if bound.host in _ANY_HOST else bound.host, bound.port
            )
            for bound in self.bound_listeners
        }
        given = self._without_controllers("advertised.listeners", self.advertised_listeners or ())
        for listener in given:
            if listener.name not in advertised:
                raise ConfigError(
                    f"advertised.listeners holds {listener}, which listeners does not"
                )
            if listener.host in _ANY_HOST:
                raise ConfigError(
                    f"advertised.listeners holds {listener}, whose host no client can reach"
                )
            advertised[listener.name] = listener
        return tuple(advertised.values())

    @property
    def connection_overrides(self) -> Mapping[str, int]:
        """Limits of `max.connections.per.ip.overrides` by address."""
        overrides: dict[str, int] = {}
        for pair in filter(None, self.max_connections_per_ip_overrides.replace(" ", "").split(",")):
            address, colon, count = pair.rpartition(":")
            if not colon or not count.isdecimal() or int(count) > INT_MAX:
                raise ConfigError(
                    f"max.connections.per.ip.overrides holds '{pair}', which is not address:count"
                )
            overrides[address.strip("[]")] = int(count)
        return overrides

    @property
    def inter_broker_listener(self) -> str:
        return self.inter_broker_listener_name or self.bound_listeners[0].name

    def _without_controllers(self, name: str, endpoints: tuple[str, ...]) -> tuple[Listener, ...]:
        controllers = {controller.upper() for controller in self.controller_listener_names}
        return tuple(
            listener
            for listener in parse_listeners(name, endpoints)
            if listener.name not in controllers
        )

    def _require_inter_broker_listener(self) -> None:
        name = self.inter_broker_listener_name
        if name is not None and name not in {listener.name for listener in self.bound_listeners}:
            raise ConfigError(
                f"inter.broker.listener.name is '{name}' but listeners has no listener of that name"
            )
