/* Strobe: exact attention. The C ABI, and the only symbols libstrobe exports.
 *
 * The life of a call:
 *
 *     strobe_problem problem;          what to compute: shapes, strides, types, masks; no pointers
 *     strobe_problem_init(&problem);
 *     ... fill in ...
 *     strobe_plan_create(&problem, &options, &plan, &status);   checked once, for a stated device
 *     strobe_plan_run(plan, &args, stream, &status);            pointers only; allocates nothing
 *     strobe_plan_destroy(plan);
 *
 * The mathematics, for one query i and key j of one head (docs/numerics.md has the whole
 * convention):
 *
 *     s   = softcap(scale * q.k) - slope * |i + offset - j| + bias, or -inf where masked
 *     lse = log(sum_j exp(s_j) + exp(sink))                         natural logarithm
 *     o   = sum_j exp(s_j - lse) * keep_j / (1 - dropout_p) * v_j
 *
 * Tensors are named as in the papers. Their dimensions, whatever their strides:
 *
 *     q, o, dout, dq  [batch, seqlen_q, heads,    head_dim or head_dim_v]   element type `dtype`
 *     k, v, dk, dv    [batch, seqlen_k, kv_heads, head_dim or head_dim_v]   element type `dtype`
 *     lse, dlse       [batch, heads, seqlen_q]; varlen: [heads, total_q]    float32
 *     sinks, dsinks   [heads]                                               float32
 *     alibi_slopes    [heads] or [batch, heads]                             float32
 *     bias            [batch|1, heads|1, seqlen_q|1, seqlen_k]              float32 or `dtype`
 *     dbias           as bias, contiguous                                   float32
 *     mask            as bias, one byte each: 0 = masked, else visible
 *
 * Everywhere float32 stands above, read float64 when dtype is STROBE_F64.
 * Query head h reads key/value head h / (heads / kv_heads).
 *
 * Every function is thread-safe; a plan is immutable and may run in many threads at once, each run
 * with a workspace of its own. No function prints, exits or throws.
 */
#ifndef STROBE_STROBE_H_
#define STROBE_STROBE_H_

#include <stddef.h>
#include <stdint.h>

#define STROBE_VERSION_MAJOR 0
#define STROBE_VERSION_MINOR 1
#define STROBE_VERSION_PATCH 0

#if defined(_WIN32)
#if defined(STROBE_BUILDING)
#define STROBE_API __declspec(dllexport)
#else
#define STROBE_API __declspec(dllimport)
#endif
#else
#define STROBE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Values -------------------------------------------------------------------------------- */

/* "Let Strobe fill it in": the default of every integer field that has no better one. */
#define STROBE_AUTO INT64_MIN
/* The default of `scale`: 1 / sqrt(head_dim). */
#define STROBE_SCALE_AUTO (-1.7976931348623157e+308)

typedef int32_t strobe_code;
enum {
  STROBE_OK = 0,
  STROBE_INVALID_ARGUMENT = 1, /* wrong whatever the backend; the message has the remedy */
  STROBE_UNSUPPORTED = 2,      /* a valid problem that no backend of the device takes */
  STROBE_OUT_OF_MEMORY = 3,
  STROBE_INTERNAL = 4 /* a defect in Strobe: please report it */
};

typedef int32_t strobe_dtype;
enum {
  STROBE_NONE = 0, /* absent */
  STROBE_F32 = 1,
  STROBE_BF16 = 2,
  STROBE_F16 = 3,
  STROBE_F64 = 4, /* served by the reference */
  STROBE_F8E4M3 = 5,
  STROBE_F8E5M2 = 6,
  STROBE_BOOL = 7 /* one byte: 0 = false, anything else = true */
};

typedef int32_t strobe_op;
enum {
  STROBE_FORWARD = 0,  /* q k v -> o, lse (optional) */
  STROBE_BACKWARD = 1, /* q k v o lse dout [dlse] -> dq dk dv [dbias] [dsinks] */
  STROBE_MERGE = 2,    /* partial_o[n], partial_lse[n] -> o, lse: over the union of the keys */
  STROBE_PROBS = 3,    /* q k lse -> probs = exp(s - lse) of chosen query rows, before dropout */
  STROBE_KEEP_MASK = 4 /* seed, offset -> keep_mask of chosen query rows: 1 where dropout keeps P */
};

/* Order of the dimensions in memory where strides are STROBE_AUTO. */
typedef int32_t strobe_layout;
enum {
  STROBE_BSHD = 0, /* [batch, seqlen, heads, head_dim]; varlen: [total, heads, head_dim] */
  STROBE_BHSD = 1  /* [batch, heads, seqlen, head_dim]; varlen: [heads, total, head_dim] */
};

/* How long the sequences of the batch are. */
typedef int32_t strobe_lengths;
enum {
  STROBE_DENSE = 0,  /* all seqlen_q and seqlen_k */
  STROBE_PADDED = 1, /* padded tensors: sequence b holds seqlens_q[b] of seqlen_q rows, seqlens_k[b]
                        of seqlen_k */
  STROBE_VARLEN = 2  /* packed tensors [total, heads, head_dim]: sequence b is rows cu_seqlens[b] to
                        cu_seqlens[b + 1] */
};

typedef int32_t strobe_alibi;
enum {
  STROBE_ALIBI_NONE = 0,
  STROBE_ALIBI_PER_HEAD = 1,      /* slopes [heads] */
  STROBE_ALIBI_PER_BATCH_HEAD = 2 /* slopes [batch, heads] */
};

typedef int32_t strobe_device_kind;
enum { STROBE_DEVICE_CPU = 0, STROBE_DEVICE_CUDA = 1, STROBE_DEVICE_EMULATOR = 2 };

/* ---- Status -------------------------------------------------------------------------------- */

/* What went wrong. Owned by the caller; every function that takes one accepts NULL and, given one,
 * always fills it in, with STROBE_OK and empty strings on success. */
typedef struct strobe_status {
  strobe_code code;
  char argument[60]; /* the field or pointer at fault, as spelled in this header, e.g. "kv_heads" */
  char message[1984]; /* its value, the limit, and what to do; several refusals are one line each */
} strobe_status;

/* ---- Problem ------------------------------------------------------------------------------- */

/* Distance in elements between neighbours along each dimension. The innermost dimension of q, k, v,
 * o and their gradients always has stride 1. STROBE_AUTO: contiguous in the problem's layout, from
 * the strides inside it. An input may have stride 0 (broadcast) or negative strides; the stride of
 * a dimension of size 1 is ignored, and so is `batch` for varlen. For lse and dlse: [batch, head,
 * seq], contiguous in that order by default. */
typedef struct strobe_strides {
  int64_t batch;
  int64_t seq;
  int64_t head;
} strobe_strides;

/* A tensor added to, or masking, the scores: [batch|1, heads|1, seqlen_q|1, seqlen_k], innermost
 * stride 1. Sizes STROBE_AUTO: the problem's own; 1 broadcasts. Strides STROBE_AUTO: contiguous. In
 * varlen and padded problems its rows and columns count from the start of each sequence, and its
 * sizes bound the lengths. */
typedef struct strobe_score_tensor {
  strobe_dtype
      dtype; /* STROBE_NONE: absent. bias: STROBE_F32 or the problem's dtype; mask: STROBE_BOOL */
  int32_t reserved; /* 0 */
  int64_t batch;
  int64_t heads;
  int64_t seqlen_q;
  int64_t seqlen_k;
  int64_t stride_batch;
  int64_t stride_head;
  int64_t stride_q;
} strobe_score_tensor;

/* What to compute. Fill in with strobe_problem_init, then change what differs. */
typedef struct strobe_problem {
  uint32_t struct_size; /* sizeof(strobe_problem) of the caller: a shorter one leaves the rest at
                           its defaults, a longer one is refused */
  strobe_op op;         /* default STROBE_FORWARD */
  strobe_dtype dtype;   /* default STROBE_F32 */
  strobe_layout layout; /* default STROBE_BSHD */

  int64_t batch;    /* sequences, >= 0; default 1 */
  int64_t heads;    /* query heads, >= 1; default 1 */
  int64_t kv_heads; /* a divisor of heads; STROBE_AUTO: heads. GQA: heads / kv_heads > 1; MQA: 1 */
  int64_t seqlen_q; /* rows of q per sequence, >= 0; padded: allocated rows; varlen: upper bound, 0
                       = unknown */
  int64_t seqlen_k; /* rows of k and v per sequence, likewise */
  int64_t head_dim; /* of q and k, 1 to 512 */
  int64_t head_dim_v; /* of v and o, 1 to 512; STROBE_AUTO: head_dim */

  strobe_lengths lengths; /* default STROBE_DENSE */
  int32_t deterministic; /* 1: backward gives the same bits every time, on every device. CPU: always
                            so */
  int64_t total_q;       /* varlen: rows of q (at least cu_seqlens_q[batch]); else ignored */
  int64_t total_k;       /* varlen: rows of k and v */

  double scale;         /* default STROBE_SCALE_AUTO: 1 / sqrt(head_dim) */
  double softcap;       /* 0 = none; else s becomes softcap * tanh(s / softcap) */
  int64_t window_left;  /* keys visible before the diagonal, inclusive count; -1 = all (default) */
  int64_t window_right; /* keys visible after the diagonal; -1 = all (default), 0 = causal */
  int64_t query_offset; /* diagonal of query i: key i + query_offset. STROBE_AUTO: the sequence's
                           seqlen_k - seqlen_q, which aligns the last query with the last key */
  strobe_alibi alibi;   /* default none */
  int32_t sinks;        /* 1: one more logit per head joins the softmax, with no value vector */
  strobe_score_tensor bias;
  strobe_score_tensor mask;
  double dropout_p; /* probability of dropping an element of P, in [0, 1); default 0 */

  strobe_strides q_strides;
  strobe_strides k_strides;
  strobe_strides v_strides;
  strobe_strides o_strides;
  strobe_strides lse_strides;
  strobe_strides dout_strides;
  strobe_strides dlse_strides;
  strobe_strides dq_strides;
  strobe_strides dk_strides;
  strobe_strides dv_strides;

  /* Promised alignment of the pointers q k v o dout dq dk dv and partial_o: a power of two from 1
   * to 256, default 16. run() refuses pointers that break the promise. */
  int32_t alignment_bytes;
  int32_t partials;           /* STROBE_MERGE: number of partial results, >= 1 */
  strobe_dtype partial_dtype; /* STROBE_MERGE: of partial_o; STROBE_NONE: dtype */
  int32_t reserved;           /* 0 */
  int64_t num_rows; /* STROBE_PROBS, STROBE_KEEP_MASK: number of chosen query rows, >= 0 */
} strobe_problem;

/* Writes the defaults stated above, struct_size included. */
STROBE_API void strobe_problem_init(strobe_problem* problem);

/* Checks a problem without planning it: STROBE_OK, or STROBE_INVALID_ARGUMENT with the first fault.
 */
STROBE_API strobe_code strobe_problem_check(const strobe_problem* problem, strobe_status* status);

/* ---- Plan ---------------------------------------------------------------------------------- */

typedef struct strobe_plan strobe_plan;

/* One unit of a parallel loop. `worker` is in [0, threads) and no two units run at once with the
 * same one. */
typedef void (*strobe_task)(void* arg, int64_t index, int32_t worker);

/* The user's own threads. parallel_for calls task(arg, index, worker) once for each index in [0,
 * count), in any order, and returns when all are done. Tasks may wait for tasks that have started,
 * never for others, so an executor may run them one after the other; it must not run two tasks of
 * one loop interleaved on one thread. */
typedef struct strobe_executor {
  void* context;
  void (*parallel_for)(void* context, int64_t count, strobe_task task, void* arg);
  int32_t threads; /* >= 1 */
  int32_t reserved;
} strobe_executor;

typedef struct strobe_plan_options {
  uint32_t struct_size; /* as in strobe_problem */
  strobe_device_kind device;
  int32_t device_index;
  int32_t threads;    /* CPU: 0 = the environment variable STROBE_NUM_THREADS, else every CPU this
                         process may use */
  const char* kernel; /* NULL: the cheapest that takes the problem. Else by name, for study:
                         "reference", "cpu" ... */
  const char* overrides; /* NULL, or "key=value,key=value" for experiments; `strobe info` lists the
                            keys of each kernel */
  const strobe_executor* executor; /* NULL: Strobe's own threads. Copied into the plan */
} strobe_plan_options;

STROBE_API void strobe_plan_options_init(strobe_plan_options* options);

/* Makes a plan for the problem on one device; options may be NULL (CPU, everything automatic). On
 * failure *plan is NULL and the status says why: the fault in the problem, or each backend's reason
 * to refuse, one a line. */
STROBE_API strobe_code strobe_plan_create(const strobe_problem* problem,
                                          const strobe_plan_options* options, strobe_plan** plan,
                                          strobe_status* status);
STROBE_API void strobe_plan_destroy(strobe_plan* plan); /* NULL is fine */

/* Bytes that args.workspace must hold: 0, or a multiple of 256, proportional to the number of
 * tokens. */
STROBE_API size_t strobe_plan_workspace_bytes(const strobe_plan* plan);

/* The estimates behind a plan. Varlen: for all sequences at their upper bounds. */
typedef struct strobe_plan_facts {
  uint32_t struct_size;
  int32_t threads;      /* that run() will use; 0 on a GPU */
  double visible_pairs; /* (query, key) pairs that the band leaves visible, over batch and heads */
  double
      flops; /* matmul operations on them: 2 (d + dv) forward, 2 (3 d + 2 dv) backward, per pair */
  double bytes;           /* least traffic: every input read once, every output written once */
  double workspace_bytes; /* as strobe_plan_workspace_bytes */
  double standard_bytes;  /* extra memory of standard attention, which stores S and P (float32) */
} strobe_plan_facts;

/* facts->struct_size must be set to sizeof(strobe_plan_facts). */
STROBE_API strobe_code strobe_plan_get_facts(const strobe_plan* plan, strobe_plan_facts* facts,
                                             strobe_status* status);

typedef int32_t strobe_format;
enum { STROBE_TEXT = 0, STROBE_JSON = 1 };

/* Why this plan: kernel, tiles, FLOPs, bytes, memory, and why others refused. Writes at most
 * `capacity` bytes, the final 0 included, and returns the bytes that the whole text needs with it.
 * buffer may be NULL when capacity is 0. */
STROBE_API size_t strobe_plan_explain(const strobe_plan* plan, strobe_format format, char* buffer,
                                      size_t capacity);

/* ---- Run ----------------------------------------------------------------------------------- */

/* Pointers of one run, in the memory space of the plan's device. Outputs must not overlap each
 * other or any input; inputs may overlap. A pointer may be NULL where its tensor is optional,
 * absent from the problem, or has no elements. */
typedef struct strobe_run_args {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  const void* q;
  const void* k;
  const void* v;
  void* o;   /* written by forward and merge; read by backward */
  void* lse; /* written by forward and merge (optional); read by backward and probs */

  const void* dout;
  const void* dlse; /* optional */
  void* dq;
  void* dk;
  void* dv;
  void* dbias;  /* optional, needs problem.bias; overwritten, not added to */
  void* dsinks; /* optional, needs problem.sinks */

  const void* bias;
  const uint8_t* mask;
  const void* alibi_slopes;
  const void* sinks;

  const int32_t* cu_seqlens_q; /* varlen: [batch + 1], from 0, never decreasing, at most total_q */
  const int32_t* cu_seqlens_k;
  const int32_t* seqlens_q; /* [batch]. padded: at least one of the two; varlen: optional, rows used
                               of each sequence */
  const int32_t* seqlens_k;

  uint64_t dropout_seed;
  uint64_t dropout_offset;
  const uint64_t* dropout_state; /* NULL, or {seed, offset} in the device's memory, read when the
                                    run executes */

  const void* const* partial_o; /* STROBE_MERGE: host array of `partials` pointers, each laid out as
                                   o_strides say */
  const void* const* partial_lse; /* likewise, as lse_strides say */

  const int64_t* rows; /* [num_rows] query rows, from the start of each sequence; varlen: rows of q,
                          in [0, total_q) */
  void* probs; /* [batch, heads, num_rows, seqlen_k] contiguous float32; varlen: [heads, num_rows,
                  seqlen_k]. 0 where a key is masked or absent */
  uint8_t* keep_mask; /* the same shape; 0 where a key or row is absent */

  void* workspace; /* strobe_plan_workspace_bytes(plan) bytes, 256-byte aligned, undefined before
                      and after */
  size_t workspace_bytes;
} strobe_run_args;

STROBE_API void strobe_run_args_init(strobe_run_args* args);

/* Runs the plan. CPU: complete on return; stream must be NULL. CUDA: enqueued on `stream`, a
 * CUstream. On any error nothing has been written. */
STROBE_API strobe_code strobe_plan_run(const strobe_plan* plan, const strobe_run_args* args,
                                       void* stream, strobe_status* status);

/* ---- The library --------------------------------------------------------------------------- */

STROBE_API const char* strobe_version(void); /* "0.1.0" */

/* CPU targets, devices, backends with their overrides, build options. Buffer as in
 * strobe_plan_explain. */
STROBE_API size_t strobe_library_info(strobe_format format, char* buffer, size_t capacity);

/* Size of an element in bytes; 0 for STROBE_NONE and unknown values. */
STROBE_API size_t strobe_dtype_bytes(strobe_dtype dtype);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STROBE_STROBE_H_ */
