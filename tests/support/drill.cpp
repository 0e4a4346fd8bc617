#include "support/drill.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "spec/layout/layout_toml.h"
#include "support/run_results.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

// Through a shell: the rank's words and code in the folder. It outlives mpirun's SIGTERM to tell them, and does so
// without another program, which would not. A survivor ends a little later than it could: mpirun kills all that are
// left as soon as a second one has ended, whatever they were about to tell.
const char* const kRank = R"sh(
trap : TERM INT
told=$1 each=$2
shift 2
(eval "$each"; exec "$@") 2>"$told/words.$OMPI_COMM_WORLD_RANK"
code=$?
echo $code >"$told/code.$OMPI_COMM_WORLD_RANK"
[ $code -ne 5 ] || (trap '' TERM INT; exec sleep 0.7)
exit $code
)sh";

void nap(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool in_path(const std::string& program) {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

std::string no_drill_here(bool as_root) {
  if (!in_path("mpirun")) return "no mpirun here";
  if (as_root && geteuid() != 0) return "not root here";
  return "";
}

namespace {
// "dp=3,zero=3" as lines of a run file; all values are numbers.
std::string toml_lines(std::string layout) {
  std::ranges::replace(layout, ',', '\n');
  return layout + '\n';
}
}  // namespace

Drill::Drill(const TemporaryFolder& folder, const std::string& layout, double deadline)
    : folder_(folder), ranks_(static_cast<int>(parse_layout(layout).ranks())) {
  std::ofstream(folder_ / "tiny.toml") << tiny_run(36, deadline) << "[layout]\n" << toml_lines(layout);
  fs::create_directories(folder_ / "told");
}

std::vector<std::string> Drill::endless() {
  return {"--set", "train.steps=1000000", "--set", "train.eval_every=0",
          "--set", "train.save_every=5",  "--set", "optim.schedule=constant"};
}

std::vector<std::string> Drill::train(const std::vector<std::string>& more) const {
  std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", out()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void Drill::start(const std::vector<std::string>& more, const std::vector<std::string>& launcher,
                  const std::string& each) {
  for (const auto& file : fs::directory_iterator(folder_ / "told")) fs::remove(file.path());
  std::vector<std::string> words{"timeout", "-k", "10", "90"};  // a drill that fails must end too
  const std::vector<std::string> mpirun{"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                                        "-n",     std::to_string(ranks_)};
  for (const std::string& word : launcher.empty() ? mpirun : launcher) words.push_back(word);
  words.insert(words.end(), {"sh", "-c", kRank, "rank", folder_ / "told", each});
  running_ = std::make_unique<Program>(train(more), "/", words);
}

// The program itself, not the shell around it: its command line begins with its name.
std::map<int, pid_t> Drill::processes() const {
  std::map<int, pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = text_of(entry.path() / "cmdline"), environment = text_of(entry.path() / "environ");
    const std::string mark = "OMPI_COMM_WORLD_RANK=";
    const auto at = environment.find(mark);
    if (line.rfind(LOCKSTEP_BINARY, 0) != 0 || !has(line, out()) || at == std::string::npos) continue;
    ranks[std::atoi(environment.c_str() + at + mark.size())] = std::atoi(name.c_str());
  }
  return ranks;
}

std::string Drill::latest() const { return text_of(out() + "/checkpoints/latest"); }

std::map<int, pid_t> Drill::trains() const {
  for (const double until = now() + 30; latest().empty() && now() < until;) nap(1);
  return processes();
}

bool Drill::saves_again() const {
  const std::string before = latest();
  for (const double until = now() + 30; latest() == before && now() < until;) nap(1);
  return latest() != before;
}

void Drill::did() { did_ = now(); }

Drill::Ended Drill::end() {
  Ended ended;
  ended.launcher = running_->wait();
  ended.seconds = now() - did_;
  for (int i = 0; i < 100 && !processes().empty(); ++i) nap(20);  // mpirun may be a little ahead of who it ends
  for (const auto& [rank, process] : processes()) {
    ended.left.push_back(process);
    kill(process, SIGKILL);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    Rank& told = ended.ranks[rank];
    told.words = text_of(folder_ / fmt::format("told/words.{}", rank));
    const fs::path code = folder_ / fmt::format("told/code.{}", rank);
    if (!fs::exists(code)) continue;
    told.code = std::atoi(text_of(code).c_str());  // 0 where it has not got as far as to write it
    const auto at = std::chrono::file_clock::to_sys(fs::last_write_time(code));
    told.seconds = std::chrono::duration<double>(at.time_since_epoch()).count() - did_;
  }
  return ended;
}

std::string Drill::Ended::text() const {
  std::string all = fmt::format("mpirun: {} after {:.2f} s, {} left\n", launcher.code, seconds, left.size());
  for (const auto& [rank, told] : ranks)
    all += fmt::format("rank {}: {} after {:.2f} s: {}\n", rank, told.code, told.seconds, told.words);
  return all + launcher.err;
}

std::string Drill::goes_on() const {
  const std::string before = latest();
  std::vector<std::string> more = endless();
  more.insert(more.end(), {"--resume", "--layout", "dp=2,micro=3"});
  Program next(train(more));
  next.wait_for_output("/1000000");
  next.signal(SIGINT);
  const Outcome rest = next.wait();
  if (rest.code == 0 && has(rest.out, "resuming from") && latest() != before) return "";
  return fmt::format("it did not go on: {} {} {}", rest.code, rest.out, rest.err);
}

}  // namespace lockstep::tests
