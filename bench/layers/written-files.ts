import { existsSync, readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { fileURLToPath } from "node:url";

/** A place in code that runs, as V8's profiles name it: lines and columns count from 0. */
export interface Place {
  readonly url: string;
  readonly lineNumber: number;
  readonly columnNumber: number;
}

/** Tells in which file a function was written. The code of the package has many such files in one. */
export class WrittenFiles {
  readonly #maps = new Map<string, SourceMap | undefined>();

  /** The address of the file, from the source map beside the code; `url` where there is none. */
  fileOf({ url, lineNumber, columnNumber }: Place): string {
    if (!url.startsWith("file:")) return url;
    if (!this.#maps.has(url)) this.#maps.set(url, mapBeside(fileURLToPath(url)));
    const entry = this.#maps.get(url)?.findEntry(lineNumber, columnNumber);
    return entry !== undefined && "originalSource" in entry ? entry.originalSource : url;
  }
}

function mapBeside(file: string): SourceMap | undefined {
  const map = `${file}.map`;
  return existsSync(map) ? new SourceMap(JSON.parse(readFileSync(map, "utf8"))) : undefined;
}
