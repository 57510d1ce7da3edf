/** The fabrics that reach another process, and how to listen on each. */
export const fabrics = ["shm", "tcp"] as const;
export type Fabric = (typeof fabrics)[number];

let names = 0;

/** A URL to listen at that nobody else uses. */
export function freshUrl(fabric: Fabric): string {
  return fabric === "tcp" ? "tcp://127.0.0.1:0" : `shm://${freshName()}`;
}

export function freshName(): string {
  return `test.${process.pid}.${++names}`;
}

/** Under a sanitizer everything is slower, and memory and processor time say nothing. */
export const underSanitizers = process.env.CINNABAR_SANITIZERS !== undefined;
