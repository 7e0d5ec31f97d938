"""Every name of NVIDIA FLARE that this package uses. No other module imports nvflare.

FLARE promises none of these names: they lie below its public interface. tests/contracts/test_flare_contract.py holds
what is expected of them. Read this list and run that test before another version is taken. The two modules that extend
these classes are `tls_driver` (how connections are opened) and `restricted_cell` (what is read from them).
"""

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, MessagePropKey, MessageType, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc.qq import QQ
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame as GrpcFrame
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub, add_StreamerServicer_to_server
from nvflare.fuel.f3.drivers.grpc.utils import get_grpc_server_credentials
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver, Server, Servicer
from nvflare.fuel.f3.drivers.net_utils import get_address, get_ssl_context, get_tcp_urls
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler, SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.sfm.conn_manager import SfmFrameReceiver
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.stats_pool import StatsPoolManager

__all__ = [
    "FQCN",
    "PREFIX_LEN",
    "QQ",
    "CellIdentityResolver",
    "CellMessage",
    "CommError",
    "ConnectionHandler",
    "ConnectorInfo",
    "CoreCell",
    "DriverParams",
    "Encoding",
    "GrpcDriver",
    "GrpcFrame",
    "HandshakeKeys",
    "MessageHeaderKey",
    "MessagePropKey",
    "MessageType",
    "Mode",
    "Prefix",
    "ReturnCode",
    "Server",
    "Servicer",
    "SfmConnection",
    "SfmFrameReceiver",
    "SocketConnection",
    "StatsPoolManager",
    "StreamerStub",
    "TcpDriver",
    "TcpStreamServer",
    "Types",
    "add_StreamerServicer_to_server",
    "driver_mgr",
    "get_address",
    "get_grpc_server_credentials",
    "get_ssl_context",
    "get_tcp_urls",
]
