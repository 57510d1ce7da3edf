// Sends far more than its server takes now, and tells how it fared.
import { Engine, RpcError } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

const { url, other, writer } = settings<{
  readonly url: string;
  readonly other?: string;
  readonly writer: string;
}>();
const patient = { timeoutMs: 100_000 };
const engine = await Engine.open({ heartbeatMs: 30_000 });
const trial = (await engine.connect(url)).client(Trial, patient);
const elsewhere = other === undefined ? undefined : (await engine.connect(other)).client(Trial, patient);

obey({
  ...engineCommands(engine),
  /**
   * Calls with bodies of a size, all at once; tells the places they got at the server, and how many failed with which
   * code.
   */
  press({ count, load }: { count: number; load: number }) {
    const filler = "x".repeat(load);
    const codes: Record<string, number> = {};
    const calls = Array.from({ length: count }, (_, number) =>
      trial.note({ writer, number, load: filler }, { whenFull: "fail" }).catch((error: unknown) => {
        const code = error instanceof RpcError ? error.code : String(error);
        codes[code] = (codes[code] ?? 0) + 1;
        return 0;
      }),
    );
    void Promise.all(calls).then((places) => tell("pressed", { places, codes }));
  },
  async elsewhere(count: number) {
    for (let i = 0; i < count; i++) await elsewhere?.echo({ token: `${i}` });
  },
});
tell("connected");
