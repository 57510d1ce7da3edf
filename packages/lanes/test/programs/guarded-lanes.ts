import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type LaneSecurityOptions, type LanesOptions, openLanes } from "cinnabar-lanes";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";
import type { GuardedData } from "./guarded-service.ts";

export interface GuardedLanesSettings extends LanesOptions {
  /** Where `server.pem`, `server.key`, `ca.pem` and `crl.pem` are. Undefined: no certificates. */
  readonly folder?: string;
  readonly rules?: GuardedData["rules"];
}

const { folder, rules = "names", security, ...options } = settings<GuardedLanesSettings>();
const known = new SharedArrayBuffer(4);
new Int32Array(known).fill(1);

const file = (name: string) => () => readFileSync(join(folder ?? "", name));
const tls = { cert: file("server.pem"), key: file("server.key"), ca: file("ca.pem"), crl: file("crl.pem") };
const secured: LaneSecurityOptions | undefined =
  folder === undefined ? security : { shm: "tls", ...security, tls };

try {
  const host = await openLanes(new URL("./guarded-service.js", import.meta.url), {
    ...options,
    ...(secured && { security: secured }),
    data: { rules, known } satisfies GuardedData,
    onLaneDied: ({ lane, deaths }) => tell("died", { lane, deaths }),
  });
  obey({
    reload: () => host.reloadSecurity(),
    /** The key of the pair is known no more. */
    forget: () => void new Int32Array(known).fill(0),
    stats: async () => {
      const { dispatcher, lanes } = await host.stats();
      return [dispatcher, ...lanes.map(({ engine }) => engine)].map((engine) => engine?.security);
    },
  });
  tell("listening", { urls: host.urls });
} catch (error) {
  const { name, message, code } = error as Error & { code?: string };
  tell("failed", { name, message, code });
  process.disconnect();
}
