/** What the system's errors say of descriptors, for users. By the error's name. */
export const noDescriptors: Readonly<Record<string, string>> = {
  EMFILE: "this process has no file descriptor left; raise the limit with `ulimit -n`",
  ENFILE: "this machine has no file descriptor left",
};

/** What a port says that turned a connection away (EUSERS). */
export const peerLacksDescriptors = "it has no file descriptor left for the connection";
