import { Engine, type EngineOptions, implement, type MappedFile } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Files } from "./mapped-file-service.ts";

/** Has a file mapped that others truncate. */
const { path, bytes, ...options } = settings<
  Pick<EngineOptions, "listen" | "heartbeatMs"> & { path: string; bytes: number }
>();
let file: MappedFile<"read_write">;
const serve = implement(Files, { share: () => file.share() });
const engine = await Engine.open({ ...options, serve: [serve] });

obey({
  ...engineCommands(engine),
  async map() {
    file = await engine.mapFile(path, { bytes, access: "read_write" });
    file.view(0).fill(7);
  },
  /** Reads all of the file again and again, without a turn of the event loop, until the file has lost bytes. */
  scan() {
    tell("scanning");
    const numbers = new Uint32Array(file.view(0).buffer, 0, bytes / 4);
    let sum = 0;
    do sum = numbers.reduce((total, number) => total + number, 0);
    while (!file.isDamaged);
    // Everything beyond the cut, and stores there.
    const last = numbers.reduce((total, number) => total + number, 0);
    numbers.fill(1, bytes / 8);
    return { went: sum > 0, last };
  },
  flush: () => file.flush(),
  isDamaged: () => file.isDamaged,
});
tell("listening", { urls: engine.urls });
