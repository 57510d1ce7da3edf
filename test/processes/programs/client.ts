import { type Client, Engine, type EngineOptions, type Peer, RpcError } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

interface ClientSettings {
  readonly url: string;
  readonly engine?: Pick<EngineOptions, "listen" | "heartbeatMs">;
  /** How many engines with a session and a held call of their own the process has. Default 1. */
  readonly engines?: number;
  /** Whether each holds a call. Default true. */
  readonly holds?: boolean;
  readonly name?: string;
  /** Lends two regions of so many bytes, one to be written and one to be read without end. Default 0: none. */
  readonly lends?: number;
}

const {
  url,
  engine: options = {},
  engines = 1,
  holds = true,
  name = `${process.pid}`,
  lends = 0,
} = settings<ClientSettings>();
const onFailure = (error: RpcError) => tell("failed", { code: error.code });

let engine!: Engine;
let peer!: Peer;
let trial!: Client<typeof Trial>;
for (let i = 0; i < engines; i++) {
  engine = await Engine.open(options);
  peer = await engine.connect(url);
  trial = peer.client(Trial, { timeoutMs: 100_000 });
  if (holds) trial.hold({ key: `${name}-${i}` }).catch(onFailure);
  if (lends > 0) {
    trial.fill({ into: engine.expose(new Uint8Array(lends), { access: "write" }) }).catch(onFailure);
    trial.drain({ from: engine.expose(new Uint8Array(lends), { access: "read" }) }).catch(onFailure);
  }
}

obey({
  ...engineCommands(engine),
  async echo({ token, timeoutMs = 10_000 }: { token: string; timeoutMs?: number }) {
    const result = await trial.echo.result({ token }, { timeoutMs });
    return result.ok ? result.value : { code: (result.error as RpcError).code };
  },
  /** What becomes of connecting to another server: "connected", or the error's sentence. */
  connect: ({ to }: { to: string }) =>
    engine.connect(to).then(
      () => "connected",
      (error: unknown) => String(error),
    ),
  /** This process gets the signal before it can pull the answers. */
  downloads({ count, bytes, signal }: { count: number; bytes: number; signal: string }) {
    const struck = { pid: process.pid, signal };
    for (let i = 0; i < count; i++) trial.download({ bytes, struck }).catch(onFailure);
  },
  /** So many calls that the server answers when its test says so. */
  waits(count: number) {
    for (let i = 0; i < count; i++) trial.wait({ key: `${name}-${i}` }).catch(onFailure);
  },
  /** A call that the server answers when its test says so. */
  wait(key: string) {
    trial.wait({ key }).then(
      (value) => tell("waited", { key, value }),
      (error: unknown) =>
        tell("failed", { key, code: error instanceof RpcError ? error.code : String(error) }),
    );
  },
});
tell("connected", { state: peer.state });
