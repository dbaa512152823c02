"""How a worker takes messages from its SuperNode and gives answers back.

Flower would start a process for every message, and have it execute the code that came with the run.
Here one process asks for the next message, in the way of Flower's own executor, and answers with
the fedpn that is installed. What of Flower is not public is used in this module alone.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
from flwr.app import Context, Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import (
    context_from_proto,
    context_to_proto,
    fab_from_proto,
    message_from_proto,
    message_to_proto,
)
from flwr.proto.message_pb2 import Message as WiredMessage
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

NEAR = 0.1  # seconds until a part that is still on its way is asked for again
HEARTBEAT = 10.0  # seconds; a SuperNode gives a task up after 60 without one
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Gone(Exception):  # noqa: N818
    """The SuperNode does not answer."""


class Job(NamedTuple):
    """A message with all that belongs to it."""

    token: str
    message: Message
    context: Context
    fab: bytes  # the app that came with the run


class Runtime:
    """One SuperNode's side that faces workers."""

    def __init__(self, address: str, secret: bytes) -> None:
        self.address = address
        guard = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={ACQUIRE})
        self.door = self._client(guard)

    def _client(self, proof: object) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="fedpn worker")
        return RuntimeHttpClient.from_server_address(
            self.address,
            insecure=True,  # on this machine, to its own loopback
            root_certificates=None,
            interceptors=[version, proof],  # type: ignore[list-item]
        )

    def answers(self) -> bool:
        """Whether the SuperNode is up."""
        try:
            return httpx.get(f"http://{self.address}/health", timeout=5.0).is_success
        except httpx.HTTPError:
            return False

    def next(self) -> str | None:
        """The token of the next message, where one waits."""
        try:
            kinds = [TaskType.CLIENT_APP]
            found = self.door.AcquireTask(AcquireTaskRequest(supported_task_types=kinds))
        except httpx.HTTPError as error:
            raise Gone(str(error)) from None
        return found.token or None if found.HasField("task") else None

    @contextmanager
    def job(self, token: str) -> Iterator[Job]:
        """A message that is taken, kept alive while it is worked on."""
        client = self._client(RuntimeTokenHttpInterceptor(token))
        over = threading.Event()
        beating = threading.Thread(target=_beat, args=(client, over), daemon=True)
        beating.start()
        try:
            yield _pull(client, token)
        finally:
            over.set()
            beating.join()
            client.close()

    def answer(self, job: Job, reply: Message) -> None:
        """Gives an answer, and what the app keeps until the next message of the run."""
        client = self._client(RuntimeTokenHttpInterceptor(job.token))
        try:
            _push(client, reply, job.context.node_id, job.context.run_id)
            context = context_to_proto(job.context)
            done = PushTaskOutputRequest(context=context, sub_status=SubStatus.COMPLETED)
            client.PushTaskOutput(done)
        finally:
            client.close()

    def give_up(self, token: str, asked: bytes, why: str) -> None:
        """Says that a message will not be answered, so that nobody waits for it."""
        metadata = WiredMessage.FromString(asked)
        message = message_from_proto(metadata)
        TaskIdentity.run_id = message.metadata.run_id
        TaskIdentity.node_id = message.metadata.dst_node_id
        TaskIdentity.task_id = 0
        client = self._client(RuntimeTokenHttpInterceptor(token))
        try:
            reply = Message(Error(ErrorCode.CLIENT_APP_CRASHED, why), reply_to=message)
            _push(client, reply, message.metadata.dst_node_id, message.metadata.run_id)
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=why))
        finally:
            client.close()


def told_of(message: Message) -> bytes:
    """What must be known of a message to give it up."""
    wired: bytes = message_to_proto(remove_content_from_message(message)).SerializeToString()
    return wired


def _pull(client: RuntimeHttpClient, token: str) -> Job:
    found = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id = found.task_id
    TaskIdentity.run_id = found.run.run_id
    TaskIdentity.node_id = found.context.node_id
    context = context_from_proto(found.context)
    waiting = client.PullMessages(PullAppMessagesRequest())
    if not waiting.messages_list:
        raise Gone("the message is gone")
    tree, node = waiting.message_object_trees[0], Node(node_id=context.node_id)
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, context.run_id),
        make_confirm_message_received_fn_protobuf(
            client.ConfirmMessageReceived, node, context.run_id
        ),
        return_type=Message,
        initial_backoff=NEAR,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return Job(token, message, context, fab_from_proto(found.fab).content)


def _push(client: RuntimeHttpClient, reply: Message, node: int, run: int) -> None:
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        told = client.PushMessages(
            PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
            )
        )
        send = make_push_object_fn_protobuf(
            client.PushObject, Node(node_id=node), run_id=run, session_id=told.session_id
        )
        wanted = set(told.objects_to_push)
        push_objects(get_all_nested_objects(reply), send, object_ids_to_push=wanted)


def _beat(client: RuntimeHttpClient, over: threading.Event) -> None:
    """Says that the work goes on; if nobody listens, the answer will find out."""
    while not over.wait(HEARTBEAT):
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError:
            continue
