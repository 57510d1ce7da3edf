// @ts-nocheck The packages of others that it needs are installed beside the packages under test.
// Connect's clients, with what protoc-gen-es makes of the file of `cinnabar proto`, call a service.
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { toJson } from "@bufbuild/protobuf";
import { StructSchema, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { implement } from "cinnabar";
import { httpHandler, toNodeHandler } from "cinnabar-http";
import { V1GreetRequest_Who_Role_Enum as Role, v1 } from "./generated/club_pb.js";
import { Club } from "./proto-contract.ts";

const born = new Date("1815-12-10T00:00:00.000Z");
const person = (fullName) => ({ fullName, born, badge: 2n ** 62n, role: "owner" });
const club = implement(Club, {
  greet({ who, loud, tags, photo }, call) {
    if (who.role === "guest") return call.fail("Banned", { by: "Ada", days: 3 });
    const text = `${who.fullName || "nobody"}, ${who.nickname ?? "-"}, ${loud}, ${who.born instanceof Date}`;
    return { who, text, tags, "photo-bytes": photo.byteLength };
  },
  find: ({ name }) => ({ byName: name === "" ? {} : { [name]: person(name) } }),
  async *list({ count }, call) {
    for (let at = 0; at < count; at++) {
      if (at === 2) call.fail("Tired", { at });
      yield person(`p${at}`);
    }
  },
  async total(items) {
    let sum = 0;
    for await (const { points } of items) sum += points;
    return { points: sum };
  },
  async *chat(items) {
    for await (const { text } of items) yield { text: `re: ${text}` };
  },
  ping() {},
});
const handler = httpHandler({
  services: [club],
  allow: Object.keys(Club.methods).map((name) => `${Club.name}/${name}`),
  safe: [`${Club.name}/find`],
});
const verbs = [];
const listener = toNodeHandler(handler);
const serve = (request, response) => {
  verbs.push(request.method);
  listener(request, response);
};
const listen = (server) =>
  new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`)),
  );
const one = createServer(serve);
const two = createHttp2Server(serve);
const sessions = new Set();
two.on("session", (session) => sessions.add(session));
const clientOf = async (server, httpVersion) =>
  createClient(
    v1,
    createConnectTransport({
      ...{ baseUrl: await listen(server), httpVersion, useBinaryFormat: false, useHttpGet: true },
    }),
  );

const client = await clientOf(one, "1.1");
const who = { fullName: "Zoë", born: timestampFromDate(born), badge: 2n ** 62n, role: Role.member };
const photo = Uint8Array.of(251, 255);
const greeted = await client.greet({ who: { ...who, nickname: "Z" }, loud: true, tags: ["a", "b"], photo });
console.log(greeted.text, greeted.tags, greeted.photoBytes);
const { who: back } = greeted;
console.log(timestampDate(back.born).getTime() === born.getTime(), back.badge === 2n ** 62n, Role[back.role]);
// Each value that other messages of Protobuf leave out.
const zero = await client.greet({
  who: { ...who, fullName: "", badge: 0n, born: timestampFromDate(new Date(0)) },
  loud: false,
  photo: new Uint8Array(),
});
console.log(zero.text, zero.tags, zero.photoBytes, zero.who.badge, timestampDate(zero.who.born).getTime());

const failed = await client
  .greet({ who: { ...who, role: Role.guest }, loud: true, photo })
  .catch((thrown) => thrown);
console.log(
  Code[failed.code],
  failed.findDetails(StructSchema).map((detail) => toJson(StructSchema, detail)),
);
const lacking = await client.greet({ who, loud: true }).catch(ConnectError.from);
console.log(Code[lacking.code], lacking.rawMessage);

const before = verbs.length;
const { byName } = await client.find({ name: "Ada" });
console.log(byName.Ada.fullName, Object.keys((await client.find({ name: "" })).byName), verbs.slice(before));
console.log(await client.ping({}));

const names = [];
try {
  for await (const { fullName } of client.list({ count: 5 })) names.push(fullName);
} catch (thrown) {
  names.push(thrown.findDetails(StructSchema).map((detail) => toJson(StructSchema, detail).reason)[0]);
}
console.log(names);

async function* sent(key, values) {
  for (const value of values) yield { [key]: value };
}
console.log(await client.total(sent("points", [0, 1.5])).then(({ points }) => points));
const client2 = await clientOf(two, "2");
const answers = [];
for await (const { text } of client2.chat(sent("text", ["", "b"]))) answers.push(text);
console.log(answers);

for (const session of sessions) session.destroy();
one.close();
two.close();
one.closeAllConnections();
await handler.close();
console.log("closed");
