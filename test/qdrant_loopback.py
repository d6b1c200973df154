"""A server on 127.0.0.1 that speaks Qdrant's REST and gRPC, with faults that a test switches.

No Qdrant: qdrant-client's in-memory mode does the work, and qdrant-client's own models and protocol
buffers make the bytes. So the transport, the client and the store's reactions are real; the
server's search, its limits and its error texts are not.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from qdrant_client import QdrantClient, models
from qdrant_client import grpc as pb
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

GARBAGE = b"\xff\xfe<html>no database lives here</html>"
SAFETY_S = 60.0


class Loopback:
    """Both transports over one set of collections.

    Attributes:
        fault: `` (well), `hang` (answers when released),
            `hang_query` (only searches hang), `cut` (dies in the middle of the answer),
            `drip` (REST: a byte now and then until released) or `garbage`.
        version: Release it claims to be.
        api_key: Key it wants; empty for none.
        asked: What was asked, in order, e.g. `query`.
        indexes: (collection, field) -> parameters of the payload index.
        created: Collection -> parameters beside the vectors.
    """

    def __init__(self):
        self.client = QdrantClient(":memory:")
        self.fault, self.version, self.api_key = "", "1.20.0", ""
        self.release = threading.Event()
        self.hanging = threading.Event()
        self.asked, self.indexes, self.created = [], {}, {}
        self.lock = threading.Lock()
        self.ports = {"http": 0, "grpc": 0}
        self._http = self._grpc = None
        self.start()

    def url(self, scheme, collection="heisd"):
        return f"{scheme}://127.0.0.1:{self.ports[scheme]}/{collection}"

    def start(self):
        """Listen; again on the same ports after `stop`."""
        self.release.clear()
        self.hanging.clear()
        handler = type("Handler", (RestHandler,), {"loopback": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", self.ports["http"]), handler)
        self._http.daemon_threads = True
        self.ports["http"] = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self._grpc = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self._grpc.add_generic_rpc_handlers((GrpcHandler(self),))
        self.ports["grpc"] = self._grpc.add_insecure_port(f"127.0.0.1:{self.ports['grpc']}")
        assert self.ports["grpc"], "the port is taken"
        self._grpc.start()

    def stop(self):
        """Die: connections are refused, calls that are being answered break off."""
        if self._http is None:
            return
        stopped = self._grpc.stop(0)
        self._http.shutdown()
        self._http.server_close()
        self._http = None
        self.release.set()
        stopped.wait(SAFETY_S)

    def enter(self, what, key):
        """Note a request; wait if that is the fault; return whether it may be answered."""
        self.asked.append(what)
        life = self._http
        if self.fault == "hang" or (self.fault == "hang_query" and what == "query"):
            self.hanging.set()
            self.release.wait(SAFETY_S)
        if self._http is not life:
            raise ConnectionAbortedError
        return not self.api_key or key == self.api_key

    # What both transports ask for; arguments and results are those of qdrant-client.

    def do(self, what, **arguments):
        with self.lock:
            return getattr(self.client, what)(**arguments)

    def create(self, name, vectors, **parameters):
        self.created[name] = parameters
        return self.do("create_collection", collection_name=name, vectors_config=vectors)

    def query(self, name, vector, query_filter, limit):
        return self.do(
            "query_points",
            collection_name=name,
            query=vector,
            query_filter=query_filter,
            limit=limit,
            with_payload=True,
        ).points


class RestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def log_message(self, *arguments):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = [part for part in self.path.partition("?")[0].split("/") if part]
        what, run = self.route(path, json.loads(body or b"null"))
        key = self.headers.get("api-key", "")
        try:
            if not self.loopback.enter(what, key):
                # A careless server: it repeats the key.
                return self.answer(401, {"status": {"error": f"Invalid API key {key}"}})
            if self.loopback.fault == "garbage":
                return self.send(200, GARBAGE)
            return self.answer(200, {"result": plain(run()), "status": "ok", "time": 0.0})
        except ValueError as error:
            found = 404 if "not found" in str(error) else 400
            return self.answer(found, {"status": {"error": str(error)}, "time": 0.0})
        except OSError:
            self.close_connection = True  # the client gave up, or this server died meanwhile
            return None

    do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

    def route(self, path, body):
        it, do = self.loopback, self.loopback.do
        name = path[1] if len(path) > 1 else ""
        routes = {
            ("GET", 0, ""): ("info", lambda: None),
            ("GET", 1, "collections"): ("list", lambda: do("get_collections")),
            ("GET", 1, "aliases"): ("aliases", lambda: do("get_aliases")),
            ("POST", 2, "aliases"): (
                "set_alias",
                lambda: do(
                    "update_collection_aliases",
                    change_aliases_operations=[alias_step(step) for step in body["actions"]],
                ),
            ),
            ("GET", 3, "exists"): (
                "exists",
                lambda: {"exists": do("collection_exists", collection_name=name)},
            ),
            ("PUT", 2, name): (
                "create",
                lambda: it.create(
                    name,
                    models.VectorParams(**body["vectors"]),
                    **{k: v for k, v in body.items() if k != "vectors" and v is not None},
                ),
            ),
            ("DELETE", 2, name): (
                "delete",
                lambda: do("delete_collection", collection_name=name),
            ),
            ("PUT", 3, "index"): (
                "index",
                lambda: (
                    it.indexes.update({(name, body["field_name"]): body["field_schema"]}) or DONE
                ),
            ),
            ("PUT", 3, "points"): (
                "upsert",
                lambda: (
                    do(
                        "upsert",
                        collection_name=name,
                        points=[models.PointStruct(**point) for point in body["points"]],
                    )
                    and DONE
                ),
            ),
            ("POST", 3, "points"): (
                "get",
                lambda: do("retrieve", collection_name=name, ids=body["ids"]),
            ),
            ("POST", 4, "query"): ("query", lambda: self.query(name, body)),
            ("POST", 5, "batch"): (
                "query",
                lambda: [self.query(name, search) for search in body["searches"]],
            ),
            ("POST", 4, "scroll"): ("scroll", lambda: self.scroll(name, body)),
        }
        return routes[self.command, len(path), path[-1] if path else ""]

    def query(self, name, body):
        query_filter = models.Filter(**body["filter"]) if body.get("filter") else None
        nearest, limit = body["query"]["nearest"], body["limit"]
        return {"points": self.loopback.query(name, nearest, query_filter, limit)}

    def scroll(self, name, body):
        points, offset = self.loopback.do(
            "scroll",
            collection_name=name,
            limit=body["limit"],
            offset=body.get("offset"),
            with_vectors=True,
        )
        return {"points": points, "next_page_offset": offset}

    def answer(self, status, content):
        if self.path == "/":
            content = {"title": "qdrant", "version": self.loopback.version}
        self.send(status, json.dumps(content).encode())

    def send(self, status, content):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        drips = self.loopback.fault == "drip"
        self.send_header("Content-Length", str(1_000_000 if drips else len(content)))
        self.end_headers()
        if self.loopback.fault == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif drips:
            self.loopback.hanging.set()
            self.close_connection = True
            while not self.loopback.release.wait(0.1):
                self.wfile.write(b" ")
        else:
            self.wfile.write(content)


class GrpcHandler(grpc.GenericRpcHandler):
    def __init__(self, loopback):
        self._it = loopback
        self._methods = {
            "/qdrant.Qdrant/HealthCheck": ("info", pb.HealthCheckRequest, self.info),
            "/qdrant.Collections/CollectionExists": (
                "exists",
                pb.CollectionExistsRequest,
                self.exists,
            ),
            "/qdrant.Collections/List": ("list", pb.ListCollectionsRequest, self.list),
            "/qdrant.Collections/Create": ("create", pb.CreateCollection, self.create),
            "/qdrant.Collections/Delete": ("delete", pb.DeleteCollection, self.delete),
            "/qdrant.Collections/ListAliases": ("aliases", pb.ListAliasesRequest, self.aliases),
            "/qdrant.Collections/UpdateAliases": ("set_alias", pb.ChangeAliases, self.set_alias),
            "/qdrant.Points/CreateFieldIndex": (
                "index",
                pb.CreateFieldIndexCollection,
                self.index,
            ),
            "/qdrant.Points/Upsert": ("upsert", pb.UpsertPoints, self.upsert),
            "/qdrant.Points/Get": ("get", pb.GetPoints, self.get),
            "/qdrant.Points/Query": ("query", pb.QueryPoints, self.query),
            "/qdrant.Points/QueryBatch": ("query", pb.QueryBatchPoints, self.query_batch),
            "/qdrant.Points/Scroll": ("scroll", pb.ScrollPoints, self.scroll),
        }

    def service(self, details):
        found = self._methods.get(details.method)
        if found is None:
            return None
        what, request_type, run = found
        key = dict(details.invocation_metadata).get("api-key", "")

        def handle(request, context):
            if not self._it.enter(what, key):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, f"Invalid API key {key}")
            if self._it.fault == "garbage":
                return GARBAGE
            if self._it.fault == "cut":
                context.abort(grpc.StatusCode.UNAVAILABLE, "Stream removed")
            try:
                return run(request).SerializeToString()
            except ValueError as error:
                missing = "not found" in str(error)
                code = "NOT_FOUND" if missing else "INVALID_ARGUMENT"
                context.abort(getattr(grpc.StatusCode, code), str(error))

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request_type.FromString
        )

    def info(self, request):
        return pb.HealthCheckReply(title="qdrant", version=self._it.version)

    def exists(self, request):
        found = self._it.do("collection_exists", collection_name=request.collection_name)
        return pb.CollectionExistsResponse(result=pb.CollectionExists(exists=found))

    def list(self, request):
        found = self._it.do("get_collections").collections
        return pb.ListCollectionsResponse(
            collections=[pb.CollectionDescription(name=entry.name) for entry in found]
        )

    def create(self, request):
        names = ("shard_number", "replication_factor", "write_consistency_factor")
        given = {name: getattr(request, name) for name in names if request.HasField(name)}
        if request.HasField("hnsw_config"):
            graph = request.hnsw_config
            given["hnsw_config"] = {"m": graph.m, "payload_m": graph.payload_m}
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config)
        self._it.create(request.collection_name, vectors, **given)
        return pb.CollectionOperationResponse(result=True)

    def delete(self, request):
        self._it.do("delete_collection", collection_name=request.collection_name)
        return pb.CollectionOperationResponse(result=True)

    def aliases(self, request):
        found = self._it.do("get_aliases").aliases
        return pb.ListAliasesResponse(
            aliases=[
                pb.AliasDescription(alias_name=a.alias_name, collection_name=a.collection_name)
                for a in found
            ]
        )

    def set_alias(self, request):
        steps = [GrpcToRest.convert_alias_operations(step) for step in request.actions]
        self._it.do("update_collection_aliases", change_aliases_operations=steps)
        return pb.CollectionOperationResponse(result=True)

    def index(self, request):
        schema = request.field_index_params.keyword_index_params
        self._it.indexes[request.collection_name, request.field_name] = {
            "type": "keyword",
            "is_tenant": schema.is_tenant,
        }
        return pb.PointsOperationResponse(result=COMPLETED)

    def upsert(self, request):
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        self._it.do("upsert", collection_name=request.collection_name, points=points)
        return pb.PointsOperationResponse(result=COMPLETED)

    def get(self, request):
        ids = [point.num for point in request.ids]
        found = self._it.do("retrieve", collection_name=request.collection_name, ids=ids)
        return pb.GetResponse(result=[RestToGrpc.convert_record(record) for record in found])

    def query(self, request):
        given = request.HasField("filter")
        points = self._it.query(
            request.collection_name,
            GrpcToRest.convert_query(request.query).nearest,
            GrpcToRest.convert_filter(request.filter) if given else None,
            request.limit,
        )
        return pb.QueryResponse(result=[RestToGrpc.convert_scored_point(p) for p in points])

    def query_batch(self, request):
        answers = [self.query(search).result for search in request.query_points]
        return pb.QueryBatchResponse(result=[pb.BatchResult(result=found) for found in answers])

    def scroll(self, request):
        points, offset = self._it.do(
            "scroll",
            collection_name=request.collection_name,
            limit=request.limit,
            offset=request.offset.num if request.HasField("offset") else None,
            with_vectors=True,
        )
        answer = pb.ScrollResponse(result=[RestToGrpc.convert_record(p) for p in points])
        if offset is not None:
            answer.next_page_offset.num = offset
        return answer


COMPLETED = pb.UpdateResult(operation_id=0, status=pb.UpdateStatus.Completed)
DONE = {"operation_id": 0, "status": "completed"}


def plain(value):
    """Return what JSON can hold."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return json.loads(value.model_dump_json()) if hasattr(value, "model_dump_json") else value


def alias_step(step):
    """Return the step of an alias request as qdrant-client has it."""
    if "create_alias" in step:
        return models.CreateAliasOperation(create_alias=models.CreateAlias(**step["create_alias"]))
    return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(**step["delete_alias"]))
