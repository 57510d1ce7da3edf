import { Engine, implement, type SessionPeer } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { ending, Farm, type FarmSettings, optionsOf, Worker } from "./farm-service.ts";

/* Calls those who have connected to it. It never connects, and makes no client but those of its callers. */

const own = settings<FarmSettings>();
const workers = new Map<string, SessionPeer>();

const engine = await Engine.open({
  ...optionsOf(own),
  listen: own.url,
  serve: [
    implement(Farm, {
      async join(name, { caller }) {
        workers.set(name, caller);
        const worker = caller.client(Worker);
        const leftMs = await worker.left({ timeoutMs: 60_000 });
        return { doubled: await worker.double(21), leftMs };
      },
      wait: (_, { caller }) => caller.client(Worker).hang(),
    }),
  ],
});
engine.on("sessionOpened", ({ peer }) => tell("opened", { services: peer.services }));
engine.on("sessionEnded", ({ reason }) => tell("ended", { code: reason.code }));

const clientOf = (name: string) => (workers.get(name) as SessionPeer).client(Worker, { timeoutMs: 60_000 });

/** One call of each kind. */
const calls = {
  double: (name: string) => clientOf(name).double(4),
  hang: (name: string) => clientOf(name).hang(),
  async count(name: string) {
    for await (const _ of clientOf(name).count());
  },
  async fill(name: string) {
    const source = new Uint8Array(64 << 20).fill(1);
    using from = engine.expose(source, { access: "read" });
    using to = engine.expose(new Uint8Array(64 << 20), { access: "write" });
    await clientOf(name).fill({ from, to });
  },
  long: (name: string) => clientOf(name).long(new Uint8Array(64 << 20)),
};

obey({
  ...engineCommands(engine),
  call: ({ kind, name }: { kind: keyof typeof calls; name: string }) => ending(calls[kind](name)),
  peers: () => engine.peers().map(({ address, state, services }) => ({ address, state, services })),
  stateOf: (name: string) => workers.get(name)?.state,
});
tell("listening", { urls: engine.urls });
