import { Duplex } from "node:stream";

/** A socket without a network: the test pushes what the server reads and collects what it writes. */
export class FakeSocket extends Duplex {
  readonly sent: Buffer[] = [];
  override _read(): void {}
  override _write(part: Buffer, _encoding: string, done: () => void): void {
    this.sent.push(Buffer.from(part)); // the writer uses its memory again
    done();
  }
}
