import { Role } from "../processes.ts";
import type { Assignment, Doors } from "./contract.ts";

/** The process that serves the disk. Killed and started again, it is found at the same doors. */
export class DiskServer {
  #assignment: Assignment;
  #role: Role;

  private constructor(assignment: Assignment, role: Role) {
    this.#assignment = assignment;
    this.#role = role;
  }

  static async start(assignment: Assignment): Promise<DiskServer> {
    const server = new DiskServer(assignment, roleOf(assignment));
    await server.#opened();
    return server;
  }

  get doors(): Doors {
    return this.#assignment.doors;
  }

  get pid(): number {
    return this.#role.pid;
  }

  /** Ends the process by SIGKILL. */
  async kill(): Promise<void> {
    await this.#role.kill();
  }

  /** Resolves when another process serves the file of one that was killed. */
  async restart(): Promise<void> {
    this.#role = roleOf(this.#assignment);
    await this.#opened();
  }

  async killAndRestart(): Promise<void> {
    await this.kill();
    await this.restart();
  }

  async end(): Promise<void> {
    await this.#role.end();
  }

  async #opened(): Promise<void> {
    const doors = await this.#role.announcement<Doors>();
    if (doors === undefined) throw new Error("the server ended before it served the disk");
    this.#assignment = { ...this.#assignment, doors };
  }
}

const roleOf = (assignment: Assignment): Role => new Role("storage/server", [JSON.stringify(assignment)]);
