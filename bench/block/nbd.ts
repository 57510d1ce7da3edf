import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { lackOfProgram } from "../suite/installed.ts";
import { diskBytes } from "./subjects.ts";

/** Why no NBD server can be measured here; undefined where one can. */
export function lackOfNbd(): string | undefined {
  const lacks = ["nbdkit", "fio"].map((name) =>
    lackOfProgram(name, `it belongs to Debian's package ${name}`),
  );
  return lacks.find((lack) => lack !== undefined);
}

/** nbdkit, the NBD server in C, with a disk in its memory. */
export interface Nbdkit {
  readonly uri: string;
  readonly pid: number;
  close(): Promise<void>;
}

/** `folder` gets its socket. */
export async function openNbdkit(folder: string): Promise<Nbdkit> {
  const [socket, pidFile] = [join(folder, "nbdkit.sock"), join(folder, "nbdkit.pid")];
  const place = ["--unix", socket, "--pidfile", pidFile];
  const server = spawn("nbdkit", ["--exit-with-parent", ...place, "memory", `${diskBytes}`], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ended = once(server, "exit");
  // It writes the file when it listens.
  while (!existsSync(pidFile)) {
    const status = await Promise.race([ended, pause(10)]);
    if (status !== undefined) throw new Error(`nbdkit has ended with ${status[0] ?? status[1]}`);
  }
  return {
    uri: `nbd+unix:///?socket=${socket}`,
    pid: Number(readFileSync(pidFile, "utf8")),
    async close() {
      server.kill();
      await ended;
    },
  };
}
