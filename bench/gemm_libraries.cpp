// Compares the CPU GEMM libraries of Debian's packages at the shapes of three models, and prints markdown.
//
// Every library is opened in a forked child of its own, so that they cannot disturb each other; its thread count is set
// by its environment variables before it is opened. Three modes: one thread; two threads by the library's own
// threading; two of our threads, each calling the library (set to one thread) for half of C. Rounds over all libraries
// are interleaved and the best and the median are kept, since the machine may be busy; a register-only FMA loop,
// measured in every round, is the ceiling. Then the checks: are concurrent calls right, what does a small call cost, do
// the bits of an element depend on how C is cut. The files in bench/results/ name the command.
// It is longer than most files here since it stands alone: a program to run by hand on a new machine.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {
constexpr int kRounds = 6, kModes = 3, kJobs = 57;
constexpr double kDeadline = 200;  // seconds; a round that would end later is not begun

constexpr struct Library {
  const char *name, *path;
  bool threaded, detail;
  const char* blis_arch;  // BLIS 0.9 cannot tell how many FMA units a virtual CPU has and takes 'haswell'; 0 is 'skx'
} kLibraries[] = {{"openblas-serial", "openblas-serial/libopenblas.so.0", false, false, nullptr},
                  {"openblas-pthread", "openblas-pthread/libopenblas.so.0", true, true, nullptr},
                  {"openblas-openmp", "openblas-openmp/libopenblas.so.0", true, false, nullptr},
                  {"blis-serial (as detected)", "blis-serial/libblis.so.4", false, false, nullptr},
                  {"blis-serial (skx)", "blis-serial/libblis.so.4", false, true, "0"},
                  {"blis-pthread (skx)", "blis-pthread/libblis.so.4", true, false, "0"},
                  {"blis-openmp (skx)", "blis-openmp/libblis.so.4", true, false, "0"},
                  {"onednn", "libdnnl.so.2", true, true, nullptr}};
constexpr int kCount = std::size(kLibraries);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// C (m, n) = A B + beta C, row-major and dense; ta and tb: stored as the transpose.
template <class T>
struct Problem {
  bool ta, tb;
  int64_t m, n, k;
  T beta;
  const T *a, *b;
  T* c;
  bool wrong(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += 1.0 * a[ta ? p * m + i : i * k + p] * b[tb ? j * k + p : p * n + j];
    return !(std::abs(c[i * n + j] - sum) < (sizeof(T) == 8 ? 1e-13 : 2e-5) * std::sqrt(k));
  }
};

template <class T>
using Cblas = void(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
using Dim = int64_t;
using Dnnl = int(char, char, Dim, Dim, Dim, float, const float*, Dim, const float*, Dim, float, float*, Dim);

struct Gemm {
  Cblas<float>* sgemm;
  Cblas<double>* dgemm;
  Dnnl* dnnl;
  template <class T>
  void operator()(const Problem<T>& p) const {
    block(p, 0, p.m, 0, p.n);
  }
  template <class T>
  void block(const Problem<T>& p, Dim i0, Dim i1, Dim j0, Dim j1) const {  // rows [i0, i1), columns [j0, j1) of C
    const Dim lda = p.ta ? p.m : p.k, ldb = p.tb ? p.k : p.n, m = i1 - i0, n = j1 - j0;
    const T *a = p.a + (p.ta ? i0 : i0 * lda), *b = p.b + (p.tb ? j0 * ldb : j0);
    T* c = p.c + i0 * p.n + j0;
    if constexpr (sizeof(T) == 8) {
      dgemm(101, 111 + p.ta, 111 + p.tb, m, n, p.k, 1, a, lda, b, ldb, p.beta, c, p.n);
    } else if (sgemm) {
      sgemm(101, 111 + p.ta, 111 + p.tb, m, n, p.k, 1, a, lda, b, ldb, p.beta, c, p.n);
    } else {
      dnnl(p.ta ? 'T' : 'N', p.tb ? 'T' : 'N', m, n, p.k, 1, a, lda, b, ldb, p.beta, c, p.n);
    }
  }
};

// Two persistent threads: the caller and one worker. run(f) calls f(0) and f(1) at the same time.
// Waiting spins before it sleeps: a sleeper's wake-up costs tens of microseconds, and may land on the waker's own core.
struct Pair {
  std::atomic<int> arrived{0};
  std::function<void(int)> call;
  std::jthread worker{[this] {
    while (meet(), call) call(1), meet();
  }};
  ~Pair() { call = nullptr, meet(); }
  void run(std::function<void(int)> f) { call = std::move(f), meet(), call(0), meet(); }
  void meet() {
    const int all = (arrived.fetch_add(1) + 2) / 2 * 2;
    arrived.notify_one();
    for (int spin = 0, seen; (seen = arrived) < all; ++spin) spin < 4000 ? __builtin_ia32_pause() : arrived.wait(seen);
  }
};

struct Job {
  char model;
  bool fp64;
  std::string product;  // NT forward, NN input gradient, TN weight gradient (beta 1)
  Dim m, n, k;
  const char* layer;
};

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  auto add_model = [&](char model, bool fp64, Dim N, Dim C, Dim F, Dim V) {
    auto add = [&](const char* layer, Dim tokens, Dim in, Dim out) {
      jobs.push_back({model, fp64, "NT", tokens, out, in, layer});
      jobs.push_back({model, fp64, "NN", tokens, in, out, layer});
      jobs.push_back({model, fp64, "TN", out, in, tokens, layer});
    };
    add("(C,3C)", N, C, 3 * C), add("(C,C)", N, C, C), add("(C,2F)", N, C, 2 * F), add("(F,C)", N, F, C);
    if (V > 0) add("head (C,V)", 256, C, V);
  };
  add_model('a', false, 2048, 256, 768, 4096);
  add_model('b', false, 2048, 512, 1408, 16384);
  add_model('c', false, 512, 2048, 8192, 0);
  add_model('b', true, 2048, 512, 1408, 16384);
  return jobs;
}

constexpr int kSmall[] = {16, 64, 128}, kDepth[] = {64, 512, 1408};
constexpr int kCuts[6][2] = {{300, 700}, {64, 700}, {96, 700}, {100, 700}, {600, 100}, {64, 100}};  // of C (600, 700)

struct Cell {
  int count, wrong;
  double seconds[kRounds];
};
struct Shared {  // what the children report
  Cell cells[kCount][kModes][kJobs];
  int failed[kCount], calls[kCount][2], wrong[kCount][2], cut_differs[kCount][2][6];  // [2]: fp32, fp64
  double small_ns[kCount][2][3];                                                      // [2]: threads of the library
};

template <class T>
T* allocate(Dim n, uint64_t seed = 0) {  // zeros, or random values in [-1, 1)
  void* p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  T* t = static_cast<T*>(std::memset(p, 0, n * sizeof(T)));
  for (Dim i = 0; seed && i < n; ++i) t[i] = T(Dim(seed = seed * 6364136223846793005u + 1) >> 40) / (1 << 23);
  return t;
}

template <class T>
void time_job(const Gemm& gemm, const Job& job, Pair* pair, const T* a, const T* b, T* c, Cell& cell) {
  const bool weight = job.product == "TN", by_rows = !weight || job.m >= job.n;
  const Problem<T> p{weight, job.product == "NT", job.m, job.n, job.k, T(weight), a, b, c};
  if (weight) std::memset(c, 0, sizeof(T) * p.m * p.n);
  auto half = [&](int t) {
    if (by_rows) return gemm.block(p, t * p.m / 2, (t + 1) * p.m / 2, 0, p.n);
    gemm.block(p, 0, p.m, t * p.n / 2, (t + 1) * p.n / 2);
  };
  const double start = now();
  pair ? pair->run(half) : gemm(p);
  cell.seconds[cell.count++] = now() - start;
  for (int s = 0; s < 24; ++s) cell.wrong += p.wrong(s * 7919LL % p.m, s * 104729LL % p.n);
}

// Two threads start a call at the same moment, again and again; each result must have the bits of a lone call.
template <class T>
void hammer(const Gemm& gemm, const T* a, const T* b, int& calls, int& wrong) {
  std::vector<Problem<T>> cases;
  for (Dim s = 0; s < 21; ++s) {
    const Dim m = 16 + 7 * s, n = 16 + 5 * s, k = 16 + 6 * s;
    cases.push_back({s % 3 == 2, s % 3 == 0, m, n, k, 0, a + 1000 * s, b + 1000 * s, allocate<T>(m * n)});
    gemm(cases[s]);
    for (Dim e = 0; e < m * n; ++e) wrong += cases[s].wrong(e / n, e % n);
  }
  T* out[2] = {allocate<T>(200 * 200), allocate<T>(200 * 200)};
  int bad[2] = {0, 0};
  Pair pair;
  int turn = 0;
  for (const double end = now() + 1.5; now() < end; ++turn) {
    pair.run([&](int t) {
      Problem<T> p = cases[(turn + t * (turn / 21)) % 21];
      const T* want = std::exchange(p.c, out[t]);
      gemm(p);
      bad[t] += std::memcmp(p.c, want, p.m * p.n * sizeof(T)) != 0;
    });
  }
  calls = 2 * turn;
  wrong += bad[0] + bad[1];
}

template <class T>
void try_cuts(const Gemm& gemm, const T* a, const T* b, int* differs) {
  std::vector<T> whole(600 * 700), cut(600 * 700);
  for (int test = 0; test < 9 * 6; ++test) {
    const Dim k = kDepth[test % 9 / 3], rows = kCuts[test / 9][0], columns = kCuts[test / 9][1];
    Problem<T> p{test % 3 == 2, test % 3 == 0, 600, 700, k, 0, a, b, whole.data()};
    gemm(p);
    p.c = cut.data();
    for (Dim i = 0; i < p.m; i += rows)
      for (Dim j = 0; j < p.n; j += columns) gemm.block(p, i, std::min(i + rows, p.m), j, std::min(j + columns, p.n));
    differs[test / 9] += cut != whole;
  }
}

void time_small(const Gemm& gemm, const float* a, const float* b, double* ns) {
  std::vector<float> c(128 * 128);
  for (int test = 0; test < 3 * 20; ++test) {
    const Problem<float> p{false, false, kSmall[test / 20], kSmall[test / 20], kSmall[test / 20], 0, a, b, c.data()};
    const double start = now();
    for (int i = 0; i < 40; ++i) gemm(p);
    ns[test / 20] = std::min(test % 20 ? ns[test / 20] : 1e9, (now() - start) / 40 * 1e9);
  }
}

// Seconds a FLOP: the most FMA work that registers allow, sixteen independent accumulators of 64 bytes a thread.
template <class T>
double fma_seconds(int threads) {
  constexpr int kTurns = 1 << 20;
  Pair pair;
  const double start = now();
  pair.run([&](int t) {
    typedef T Vector __attribute__((vector_size(64)));
    Vector acc[16], x = Vector{} + T(0.5), y = Vector{} + T(1);
    for (int v = 0; v < 16; ++v) acc[v] = Vector{} + T(v);
    for (int i = 0; i < kTurns * (t < threads); ++i) {
      asm volatile("" : "+v"(x));
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) acc[v] = acc[v] * x + y;
    }
    for (auto& v : acc) asm volatile("" ::"v"(v));
  });
  return (now() - start) / (threads * 2.0 * kTurns * 16 * (64 / sizeof(T)));
}

void in_child(const Library& library, const char* threads, int& failed, std::function<void(const Gemm&)> body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    for (auto name : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS"}) setenv(name, threads, 1);
    if (library.blis_arch) setenv("BLIS_ARCH_TYPE", library.blis_arch, 1);
    void* lib = dlopen((std::string("/usr/lib/x86_64-linux-gnu/") + library.path).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib) _exit(9);
    void *sgemm = dlsym(lib, "cblas_sgemm"), *dgemm = dlsym(lib, "cblas_dgemm"), *dnnl = dlsym(lib, "dnnl_sgemm");
    body({(Cblas<float>*)sgemm, (Cblas<double>*)dgemm, (Dnnl*)dnnl});
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (status != 0) failed = status;
}

double pick(std::vector<double> v, bool best) {
  std::sort(v.begin(), v.end());
  return v.empty() ? NAN : v[best ? 0 : v.size() / 2];
}
}  // namespace

int main() {
  const double start = now();
  const std::vector<Job> jobs = all_jobs();
  const float *a32 = allocate<float>(512 * 16384, 1), *b32 = allocate<float>(16384 * 2048, 2);
  const double *a64 = allocate<double>(2048 * 2816, 3), *b64 = allocate<double>(16384 * 512, 4);
  float* c32 = allocate<float>(16384 * 2048);
  double* c64 = allocate<double>(16384 * 512);
  Shared& s = *reinterpret_cast<Shared*>(allocate<char>(sizeof(Shared)));
  std::vector<double> peaks[2][2];  // seconds a FLOP, [fp64][threads - 1]

  int rounds = 0;
  for (double begin = now(), last = 0; rounds < kRounds && begin + last < start + kDeadline; ++rounds) {
    std::fprintf(stderr, "round %d begins at %.0f s\n", rounds + 1, begin - start);
    for (int l = 0; l < kCount; ++l) {
      for (int t : {0, 1}) peaks[0][t].push_back(fma_seconds<float>(t + 1));
      for (int t : {0, 1}) peaks[1][t].push_back(fma_seconds<double>(t + 1));
      for (int mode = 0; mode < kModes; ++mode) {
        if (mode == 1 && !kLibraries[l].threaded) continue;
        in_child(kLibraries[l], mode == 1 ? "2" : "1", s.failed[l], [&](const Gemm& gemm) {
          Pair* pair = mode == 2 ? new Pair : nullptr;
          Cell setting_up{};
          time_job(gemm, jobs[0], pair, a32, b32, c32, setting_up);
          for (int j = 0; j < kJobs; ++j) {
            Cell& cell = s.cells[l][mode][j];
            if (jobs[j].model == 'c' && rounds % 2 == 1) continue;  // the longest: every other round
            if (!jobs[j].fp64) time_job(gemm, jobs[j], pair, a32, b32, c32, cell);
            if (jobs[j].fp64 && gemm.dgemm) time_job(gemm, jobs[j], pair, a64, b64, c64, cell);
          }
        });
      }
    }
    last = now() - std::exchange(begin, now());
  }
  for (int l = 0; l < kCount; ++l) {
    const Library& library = kLibraries[l];
    in_child(library, "2", s.failed[l], [&](const Gemm& gemm) { time_small(gemm, a32, b32, s.small_ns[l][1]); });
    in_child(library, "1", s.failed[l], [&](const Gemm& gemm) {
      time_small(gemm, a32, b32, s.small_ns[l][0]);
      try_cuts(gemm, a32, b32, s.cut_differs[l][0]), hammer(gemm, a32, b32, s.calls[l][0], s.wrong[l][0]);
      if (gemm.dgemm)
        try_cuts(gemm, a64, b64, s.cut_differs[l][1]), hammer(gemm, a64, b64, s.calls[l][1], s.wrong[l][1]);
    });
  }

  // FLOP-weighted GFLOP/s over a model's jobs, each once; or of one job, `only`.
  auto rate = [&](int l, int mode, bool best, char model, bool fp64, int only = -1) {
    double flops = 0, seconds = 0;
    for (int j = 0; j < kJobs; ++j) {
      if (only >= 0 ? j != only : jobs[j].model != model || jobs[j].fp64 != fp64) continue;
      const Cell& cell = s.cells[l][mode][j];
      seconds += pick({cell.seconds, cell.seconds + cell.count}, best);
      flops += 2e-9 * jobs[j].m * jobs[j].n * jobs[j].k;
    }
    return flops / seconds;
  };
  std::printf("GFLOP/s: best (median) of %d rounds, ratio of the best to the best ceiling.\n", rounds);
  for (const auto& [model, fp64] : {std::pair{'a', false}, {'b', false}, {'c', false}, {'b', true}}) {
    double peak[3];
    std::printf("\n| model %c, fp%d | 1 thread | 2 own | 2 ours |\n|---|---|---|---|\n| ceiling |", model, 32 << fp64);
    for (int mode = 0; mode < kModes; ++mode) {
      peak[mode] = 1e-9 / pick(peaks[fp64][mode > 0], true);
      std::printf(" %.0f (%.0f) |", peak[mode], 1e-9 / pick(peaks[fp64][mode > 0], false));
    }
    for (int l = 0; l < kCount; ++l) {
      std::printf("\n| %s |", kLibraries[l].name);
      for (int mode = 0; mode < kModes; ++mode) {
        const double best = rate(l, mode, true, model, fp64), median = rate(l, mode, false, model, fp64);
        std::printf(std::isnan(best) ? " – |" : " %.0f (%.0f) %.2f |", best, median, best / peak[mode]);
      }
    }
    std::printf("\n");
  }
  std::printf("\n| library | wrong / calls fp32 | fp64 | wrong samples | ns 16³ | 64³ | 128³ ");
  std::printf("| halves | rows 64 | 96 | 100 | columns 100 | 64x100 | exit |\n|%s\n",
              "---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
  for (int l = 0; l < kCount; ++l) {
    int wrong = 0;
    for (int i = 0; i < kModes * kJobs; ++i) wrong += s.cells[l][i / kJobs][i % kJobs].wrong;
    std::printf("| %s |", kLibraries[l].name);
    for (int fp64 : {0, 1}) std::printf(" %d / %d |", s.wrong[l][fp64], s.calls[l][fp64]);
    std::printf(" %d |", wrong);
    for (int n = 0; n < 3; ++n) std::printf(" %.0f (%.0f) |", s.small_ns[l][0][n], s.small_ns[l][1][n]);
    for (int c = 0; c < 6; ++c) std::printf(" %d / %d |", s.cut_differs[l][0][c], s.cut_differs[l][1][c]);
    std::printf(" %d |\n", s.failed[l]);
  }
  std::printf("\n| model | (in,out) | product | m n k |");
  for (const Library& library : kLibraries) std::printf(library.detail ? " %s |" : "", library.name);
  std::printf("\n|---|---|---|---|---|---|---|");
  for (int j = 0; j < kJobs; ++j) {
    const Job& job = jobs[j];
    std::printf("\n| %c fp%d | %s | %s |", job.model, 32 << job.fp64, job.layer, job.product.c_str());
    std::printf(" %ld %ld %ld |", job.m, job.n, job.k);
    for (int at = 0; at < kCount * kModes; ++at)
      if (kLibraries[at / 3].detail) std::printf(" %.0f %c", rate(at / 3, at % 3, true, 0, false, j), "//|"[at % 3]);
  }
  std::printf("\n");
}
