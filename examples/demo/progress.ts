import { formatBytes } from "./report.ts";

const redrawMs = 100;
const lineMs = 3_000;
const barWidth = 28;

/** A bar that redraws itself on a terminal; elsewhere a plain line every few seconds, so that logs stay readable. */
export class Progress {
  readonly #title: string;
  readonly #total: number;
  readonly #live = process.stdout.isTTY === true;
  readonly #started = performance.now();
  #shownMs: number;
  #bytes = 0;

  constructor(title: string, totalBytes: number) {
    this.#title = title;
    this.#total = totalBytes;
    this.#shownMs = this.#started;
    if (this.#live) this.#draw();
    else console.log(`${title} …`);
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    const now = performance.now();
    if (now - this.#shownMs < (this.#live ? redrawMs : lineMs)) return;
    this.#shownMs = now;
    if (this.#live) this.#draw();
    else console.log(`${this.#title}: ${this.#counts()}`);
  }

  /** Ends the bar with a plain line, which is all that remains of it. */
  done(): void {
    const seconds = (performance.now() - this.#started) / 1000;
    const line = `${this.#title}: ${formatBytes(this.#bytes)} in ${seconds.toFixed(1)} s`;
    console.log(this.#live ? `\r\x1b[K${line}` : line);
  }

  /** Removes the bar from the terminal, when something else replaces its end. */
  clear(): void {
    if (this.#live) process.stdout.write("\r\x1b[K");
  }

  #draw(): void {
    const full = Math.round(this.#share * barWidth);
    const bar = "█".repeat(full) + "░".repeat(barWidth - full);
    process.stdout.write(`\r\x1b[K${this.#title} ${bar} ${this.#counts()}`);
  }

  #counts(): string {
    const percent = Math.floor(this.#share * 100);
    return `${percent} %, ${formatBytes(this.#bytes)} of ${formatBytes(this.#total)}`;
  }

  get #share(): number {
    return this.#total === 0 ? 1 : Math.min(1, this.#bytes / this.#total);
  }
}
