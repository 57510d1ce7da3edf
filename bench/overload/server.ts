import { setTimeout as pause } from "node:timers/promises";
import { Engine, type EngineOptions, implement } from "cinnabar";
import type { AdmissionOptions } from "cinnabar/options";
import type { Party } from "../suite/child.ts";
import { Overload } from "./contract.ts";

/** What the server has done and held since it was last asked. */
export interface Served {
  /** Handlers that have begun. */
  readonly begun: number;
  /** The most memory that the process had, above what it had at its start. */
  readonly grownBytes: number;
}

export interface OverloadServer extends Party {
  url(): Promise<string>;
  served(): Promise<Served>;
}

const sampleMs = 10;

export async function open(
  listen: string,
  admission: AdmissionOptions,
  limits: NonNullable<EngineOptions["limits"]>,
): Promise<OverloadServer> {
  let begun = 0;
  const engine = await Engine.open({
    listen,
    limits,
    serve: [
      implement(
        Overload,
        {
          async work({ kind, ms }) {
            begun++;
            if (kind === "wait") await pause(ms);
            else for (const until = performance.now() + ms; performance.now() < until; );
            return { ok: true };
          },
        },
        admission,
      ),
    ],
  });
  const restBytes = process.memoryUsage.rss();
  let mostBytes = restBytes;
  const sample = () => {
    mostBytes = Math.max(mostBytes, process.memoryUsage.rss());
  };
  const sampling = setInterval(sample, sampleMs);
  return {
    url: async () => engine.urls[0] ?? "",
    served: async () => {
      sample();
      const served = { begun, grownBytes: mostBytes - restBytes };
      begun = 0;
      return served;
    },
    close: () => {
      clearInterval(sampling);
      return engine.close();
    },
  };
}
