import { linkSync, lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { chmod, lstat, mkdtemp, readdir, rename, unlink } from "node:fs/promises";
import { type Server, Socket } from "node:net";

/** How often the remains of dead owners are removed before another process's success counts. */
const mostTries = 100;

/**
 * The file of a Unix socket that this process listens at.
 *
 * The folder PATH.lock is the lock, and the socket in it proves that its owner lives: a socket that refuses connections
 * has no owner. The names are made so that no step removes files of a living process:
 *
 * 1. The server listens at a random name in a new folder, PATH.xxxxxx.
 * 2. `rename` makes this folder PATH.lock. That succeeds only where no such folder is, or an empty one.
 * 3. A socket that refuses connections in PATH.lock belongs to a dead owner. Its name is random, so the process that
 *    removes it cannot meet a successor's.
 * 4. The owner of the lock alone removes a dead socket at PATH, and links its own socket there.
 *
 * The system closes a listening socket when its process ends, however it ends.
 */
export class SocketFile {
  readonly #path: string;
  readonly #lock: string;
  readonly #name: string;
  #folder: string;
  #isLinked = false;

  /** Listens at `path` with the server that `listen` makes. Only this user may connect. */
  static async listen(
    path: string,
    listen: (path: string) => Promise<Server>,
  ): Promise<{ server: Server; file: SocketFile }> {
    const file = new SocketFile(path, await mkdtemp(`${path}.`));
    let server: Server | undefined;
    try {
      server = await listen(file.#socket);
      await chmod(file.#socket, 0o600);
      await file.#takeLock();
      await file.#takePath();
      return { server, file };
    } catch (error) {
      file.remove();
      server?.close();
      throw error;
    }
  }

  private constructor(path: string, folder: string) {
    this.#path = path;
    this.#lock = `${path}.lock`;
    this.#folder = folder;
    this.#name = folder.slice(path.length + 1);
  }

  get #socket(): string {
    return `${this.#folder}/${this.#name}`;
  }

  async #takeLock(): Promise<void> {
    for (let tries = 0; tries < mostTries; tries++)
      try {
        await rename(this.#folder, this.#lock);
        this.#folder = this.#lock;
        return;
      } catch (error) {
        const { code = "" } = error as NodeJS.ErrnoException;
        if (code === "ENOTDIR") throw taken(`${this.#lock} is not a folder`);
        if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
        await this.#removeDeadOwner();
      }
    throw taken("other processes start there");
  }

  async #removeDeadOwner(): Promise<void> {
    for (const name of await readdir(this.#lock).catch(unlessGone<string[]>([]))) {
      const socket = `${this.#lock}/${name}`;
      if (!(await isDead(socket))) throw taken(`a living process holds ${this.#lock}`);
      await unlink(socket).catch(unlessGone(undefined));
    }
  }

  async #takePath(): Promise<void> {
    const found = await lstat(this.#path).catch(unlessGone(undefined));
    if (found !== undefined && !found.isSocket()) throw taken("the path is not a socket");
    if (found !== undefined && !(await isDead(this.#path))) throw taken("a living process listens there");
    if (found !== undefined) await unlink(this.#path).catch(unlessGone(undefined));
    // Peers connect from here on, so the server's owner must be ready within this turn of the event loop.
    linkSync(this.#socket, this.#path);
    this.#isLinked = true;
  }

  /** Removes the socket. A socket of another process at this path stays. */
  remove(): void {
    ignoring(() => {
      if (!this.#isLinked) return;
      const [own, there] = [this.#socket, this.#path].map((path) => lstatSync(path, { bigint: true }));
      if (own?.ino === there?.ino && own?.dev === there?.dev) unlinkSync(this.#path);
    });
    ignoring(() => unlinkSync(this.#socket));
    ignoring(() => rmdirSync(this.#folder));
  }
}

/** Whether the file is a socket of a process that has ended. */
async function isDead(path: string): Promise<boolean> {
  const found = await lstat(path).catch(unlessGone(undefined));
  if (!found?.isSocket()) return found === undefined;
  return new Promise((resolve) => {
    const socket = new Socket();
    socket.once("error", ({ code }: NodeJS.ErrnoException) =>
      resolve(code === "ECONNREFUSED" || code === "ENOENT"),
    );
    socket.connect(path, () => {
      socket.destroy();
      resolve(false);
    });
  });
}

/** Sockets that others use, or files that are not sockets. */
function taken(what: string): Error {
  const message = `${what}. Stop the process that uses the path, or choose another path`;
  return Object.assign(new Error(message), { code: "EADDRINUSE" });
}

function unlessGone<T>(instead: T): (error: NodeJS.ErrnoException) => T {
  return (error) => {
    if (error.code === "ENOENT") return instead;
    throw error;
  };
}

/** What cannot be removed is replaced by the next server. */
function ignoring(remove: () => void): void {
  try {
    remove();
  } catch {}
}
