#include "cli/bench_comm.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/comm_bench.h"
#include "cli/agree.h"
#include "cli/byte_size.h"
#include "cli/choice_option.h"
#include "cli/signals.h"
#include "cli/usage_error.h"
#include "comm/mpi/world.h"
#include "comm/processes/run_rank.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

struct BenchCommSettings {
  std::string ops, algorithms, ranks, sizes, link;
  double seconds = CommBenchOptions{}.seconds;
  bool json = false, markdown = false;
};

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> items(1);
  for (const char c : list) {
    if (c == ',')
      items.emplace_back();
    else
      items.back() += c;
  }
  return items;
}

// The values that a list names, each as `read` has it; an empty list leaves what is there.
template <class Value, class Read>
void take(std::vector<Value>& values, const std::string& list, const Read& read) {
  if (list.empty()) return;
  values.clear();
  for (const std::string& word : words_of(list)) values.push_back(read(word));
}

template <class Value>
Value named(const std::string& option, const std::string& word, const std::vector<Value>& all) {
  Choices<Value> choices;
  for (const Value value : all) choices.emplace_back(name_of(value), value);
  return chosen_of(option, word, choices);
}

std::int64_t number(const std::string& option, std::string_view digits, const std::string& word,
                    const std::string& remedy) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > (std::int64_t{1} << 40))
    refuse(fmt::format("{} {}", option, quote_text(word)), remedy);
  return value;
}

std::int64_t size_of_word(const std::string& word) {
  const std::optional<std::int64_t> bytes = parse_byte_size(word);
  if (!bytes) refuse("--sizes " + quote_text(word), "give sizes as in 4096,64KiB,1MiB");
  return *bytes;
}

CommBenchOptions read(const BenchCommSettings& s) {
  std::vector<CommOp> ops;
  for (int i = 0; i < kCommOps; ++i)
    if (can_bench(static_cast<CommOp>(i))) ops.push_back(static_cast<CommOp>(i));
  const std::vector<Algorithm> algorithms{Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native};
  if (std::isnan(s.seconds)) refuse("--seconds nan", "give a number from 0 to 3600");  // passes the parser's range
  CommBenchOptions options{.seconds = s.seconds};
  take(options.ops, s.ops, [&](const std::string& word) { return named("--ops", word, ops); });
  take(options.algorithms, s.algorithms,
       [&](const std::string& word) { return named("--algorithms", word, algorithms); });
  take(options.ranks, s.ranks, [](const std::string& word) {
    return static_cast<int>(std::min<std::int64_t>(number("--ranks", word, word, "give numbers as in 2,4,8"), 1 << 30));
  });
  take(options.sizes, s.sizes, size_of_word);
  if (!s.link.empty()) options.link = parse_link(s.link, "--link");
  return options;
}

// The columns of a row: the table's and, without its blanks, the markdown's.
class View {
 public:
  explicit View(const BenchCommSettings& s) : s_(s) {
    if (s.json) return;
    line({"backend", "operation", "algorithm", "ranks", "size", "sent per rank", "time", "GB/s", "of copy",
          s.link.empty() ? "x native" : "link"});
    if (s.markdown) line({"---", "---", "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"});
  }

  void show(const CommBenchRow& row) {
    const auto known = [](double value) { return value > 0 ? nlohmann::ordered_json(value) : nullptr; };
    const auto ratio = [](double value) { return value > 0 ? fmt::format("{:.2f}", value) : std::string("-"); };
    if (!s_.json)
      return line({std::string(name_of(row.backend)), std::string(name_of(row.op)), std::string(name_of(row.algorithm)),
                   std::to_string(row.ranks), byte_text(row.bytes), byte_text(row.sent), time_text(row.seconds),
                   fmt::format("{:.2f}", row.rate() / 1e9), ratio(row.of_copy),
                   s_.link.empty() ? ratio(row.over_native) : time_text(row.link_seconds)});
    all_.push_back({{"backend", name_of(row.backend)},
                    {"op", name_of(row.op)},
                    {"algorithm", name_of(row.algorithm)},
                    {"ranks", row.ranks},
                    {"bytes", row.bytes},
                    {"sent", row.sent},
                    {"rounds", row.rounds},
                    {"seconds", row.seconds},
                    {"rate", row.rate()},
                    {"of_copy", known(row.of_copy)},
                    {"over_native", known(row.over_native)},
                    {"link_seconds", known(row.link_seconds)}});
  }

  void end() const {
    if (s_.json) fmt::print("{}\n", all_.dump(2));
  }

 private:
  using Cells = std::array<std::string, 10>;

  static std::string time_text(double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.2f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
  }

  void line(const Cells& c) const {
    if (s_.markdown)
      fmt::print("| {} |\n", fmt::join(c, " | "));
    else
      fmt::print("{:<8} {:<14} {:<9} {:>5} {:>9} {:>13} {:>10} {:>7} {:>7} {:>10}\n", c[0], c[1], c[2], c[3], c[4],
                 c[5], c[6], c[7], c[8], c[9]);
    std::fflush(stdout);  // a row takes seconds: whoever waits for it sees it
  }

  const BenchCommSettings& s_;
  nlohmann::ordered_json all_ = nlohmann::ordered_json::array();
};

int measure(const BenchCommSettings& s, const CommBenchOptions& options, Communicator* processes) {
  const std::atomic<bool>& stop = listen_for_signals();
  std::unique_ptr<View> view;
  if (!processes || processes->rank() == 0) view = std::make_unique<View>(s);
  const bool whole = run_comm_bench(options, processes, stop, [&](const CommBenchRow& row) { view->show(row); });
  if (view) view->end();
  return static_cast<int>(whole ? ExitCode::done : ExitCode::interrupted);
}

int run_bench_comm(const BenchCommSettings& s) {
  const CommBenchOptions asked = read(s);
  if (!MpiWorld::launched()) return measure(s, settle(asked, 0), nullptr);
  MpiWorld world;
  std::unique_ptr<Communicator> ranks = world.communicator();
  require_same_program("bench comm", texts_over(*ranks), world.rank());
  NamedValues alike;
  for (const auto& [option, value] : {std::pair{"--ops", s.ops},
                                      {"--algorithms", s.algorithms},
                                      {"--ranks", s.ranks},
                                      {"--sizes", s.sizes},
                                      {"--seconds", fmt::format("{}", s.seconds)},
                                      {"--link", s.link}})
    alike.emplace_back(option, value);
  require_agreement(alike, texts_over(*ranks), world.rank());
  try {
    const CommBenchOptions options = settle(asked, world.size());
    int code = 0;
    run_rank(world, std::move(ranks),
             [&](std::unique_ptr<Communicator> comm) { code = measure(s, options, comm.get()); });
    return code;
  } catch (const UserError& error) {  // all ranks say the same
    if (world.rank() == 0) throw;
    return static_cast<int>(error.code());
  }
}

}  // namespace

void add_bench_comm(CLI::App& bench, std::function<int()>& chosen) {
  auto s = std::make_shared<BenchCommSettings>();
  CLI::App* command = bench.add_subcommand("comm", "Measure how ranks exchange, beside copying memory");
  command->footer(
      "Ranks are threads; under mpirun also the processes it has started, with as many threads beside them, and "
      "'native'\n"
      "is MPI's own. For each: the bytes that a rank sends by theory, the median time, message bytes per second, the "
      "share\n"
      "of the speed at which the same ranks copy the bytes that must be read and written, and how many times faster "
      "than\n"
      "MPI's own it is. docs/communication.md has the formulas. Ctrl-C ends it after the round at hand.\n\n"
      "--link puts a simulated link under ranks that are threads. A call then takes at least the latency for each step "
      "of\n"
      "its algorithm plus the bytes of a rank over the bandwidth; the last column is that time.\n\n"
      "Examples: lockstep bench comm --ops all_reduce,all_gather --ranks 2,4 --sizes 64KiB,16MiB\n"
      "          lockstep bench comm --ranks 4 --sizes 1MiB --link 1GB/s,50us\n"
      "          mpirun -n 2 lockstep bench comm --sizes 1MiB,64MiB");
  command->add_option("--ops", s->ops, "Of all_reduce, reduce_scatter, all_gather, broadcast, … [all_reduce]")
      ->type_name("OP,…");
  command->add_option("--algorithms", s->algorithms, "Of canonical, ring, tree, native [all that differ]")
      ->type_name("NAME,…");
  command->add_option("--ranks", s->ranks, "Ranks as threads [2,4,8; under mpirun as many as processes]")
      ->type_name("N,…");
  command->add_option("--sizes", s->sizes, "Bytes of the whole message [1KiB,64KiB,1MiB,16MiB,64MiB]")
      ->type_name("SIZE,…");
  command->add_option("--seconds", s->seconds, "Time for each operation, rank count and size [1]")
      ->check(CLI::Range(0.0, 3600.0).description(""))
      ->type_name("S");
  command->add_option("--link", s->link, "A simulated link under threads: its bandwidth and latency, as in 1GB/s,50us")
      ->type_name("RATE,TIME");
  command->add_flag("--markdown", s->markdown, "Print the table as Markdown");
  command->add_flag("--json", s->json, "Print [{backend, op, algorithm, ranks, bytes, …}]")->excludes("--markdown");
  command->callback([s, &bench, &chosen] {
    for (const CLI::Option* option : bench.get_options())
      if (option->count() > 0)
        refuse(fmt::format("{} is of lockstep bench, not of bench comm", option->get_name()), "leave it out");
    chosen = [s] { return run_bench_comm(*s); };
  });
}

}  // namespace lockstep
