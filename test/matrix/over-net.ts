/**
 * The stage `net` sets CINNABAR_TEST_NET. Tests of hostile peers, of security and of processes then run over Node's
 * sockets instead of the fabrics that they take otherwise.
 */
export const isOverNet = process.env.CINNABAR_TEST_NET !== undefined;
