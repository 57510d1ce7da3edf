/** The meaning of the system's errors about descriptors, for users. By the error's name. */
export const noDescriptors: Readonly<Record<string, string>> = {
  EMFILE: "this process has no file descriptor left; raise the limit with `ulimit -n`",
  ENFILE: "this machine has no file descriptor left",
};

/** The error text for a connection that the peer's port refused (EUSERS). */
export const peerLacksDescriptors = "it has no file descriptor left for the connection";
