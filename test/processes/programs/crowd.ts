// Many engines in one process, which connect and call when they are told to.
import { Engine, type EngineOptions, type Peer, RpcError } from "cinnabar";
import { obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

interface CrowdSettings {
  readonly url: string;
  readonly engines: number;
  readonly engine?: Pick<EngineOptions, "heartbeatMs">;
}

const { url, engines: count, engine: options = {} } = settings<CrowdSettings>();
const engines: Engine[] = [];
let peers: Peer[] = [];
for (let i = 0; i < count; i++) engines.push(await Engine.open(options));

/** What became of each of them: the time that it took, or the code and words of its error. */
interface Ends {
  readonly ms: number[];
  readonly errors: string[];
}

async function all<T>(each: readonly T[], run: (one: T) => Promise<unknown>): Promise<Ends> {
  const ends: Ends = { ms: [], errors: [] };
  const one = async (item: T) => {
    const begunMs = performance.now();
    try {
      await run(item);
      ends.ms.push(performance.now() - begunMs);
    } catch (error) {
      ends.errors.push(error instanceof RpcError ? `${error.code}: ${error.message}` : String(error));
    }
  };
  await Promise.all(each.map(one));
  return ends;
}

obey({
  /** All at once. */
  connect({ timeoutMs }: { timeoutMs: number }) {
    peers = [];
    return all(engines, async (engine) => peers.push(await engine.connect(url, { timeoutMs })));
  },
  /** One call each, all at once. */
  echo({ timeoutMs }: { timeoutMs: number }) {
    return all(peers, (peer) => peer.client(Trial, { timeoutMs }).echo({ token: "x" }));
  },
  disconnect() {
    for (const peer of peers) peer.close();
  },
});
tell("opened");
