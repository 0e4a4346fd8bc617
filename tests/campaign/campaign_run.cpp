#include "campaign/campaign_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "campaign/bit_flip.h"
#include "support/run_results.h"
#include "telemetry/launch_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRunFile = R"(
[model]
family = "llama"
vocabulary = 64
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn_width = 48
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 64
order = 1
[train]
steps = {}
global_batch = 24
eval_every = 0
save_every = {}
keep = 3
[optim]
warmup = 0
clip = 0.1
schedule = "constant"
[precision]
compute = "{}"
[run]
threads = 1
deadline = 30
)";

bool is_alive(pid_t pid) {
  const std::string status = text_of(fmt::format("/proc/{}/stat", pid));
  const std::size_t at = status.rfind(')');
  return at != std::string::npos && at + 2 < status.size() && status[at + 2] != 'Z' && status[at + 2] != 'X';
}

}  // namespace

std::atomic<bool> stop_campaigns = false;

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::vector<std::string> arguments_of(const CampaignCase& c, const fs::path& folder) {
  fs::create_directories(folder);
  // Once: agents that are started one after the other would read it while it is written for the next.
  if (!fs::exists(folder / "run.toml"))
    std::ofstream(folder / "run.toml") << fmt::format(fmt::runtime(kRunFile), c.steps, c.save_every, c.precision());
  std::vector<std::string> all{(folder / "run.toml").string(), "--out", (folder / "run").string(), "--layout",
                               c.layout};
  if (c.has("bit-flip")) std::ranges::copy(settings_for_bit_flips(), std::back_inserter(all));
  all.insert(all.end(), c.more.begin(), c.more.end());
  return all;
}

CampaignRun::CampaignRun(const CampaignCase& c, fs::path folder, int number)
    : case_(c), folder_(std::move(folder)), out_(folder_ / "run"), agents_(static_cast<std::size_t>(c.hosts)) {
  fs::create_directories(folder_);
  if (c.hosts > 1) network_ = std::make_unique<SmallNetwork>(number, c.hosts, folder_);
  const std::string size = fmt::format("size={}m", c.disk_megabytes);
  disk_ = std::make_unique<SmallDisk>(out_, size.c_str());
  checkpoint_disk_ = std::make_unique<SmallDisk>(out_ / "checkpoints", size.c_str());
  const int file = ::open(where("controls").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(FaultyControls)) != 0) throw std::runtime_error("no file of controls");
  void* const at = ::mmap(nullptr, sizeof(FaultyControls), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) throw std::runtime_error("no memory of controls");
  controls_ = static_cast<FaultyControls*>(at);
}

CampaignRun::~CampaignRun() {
  for (const Agent& agent : agents_)
    if (agent.pid > 0) ::kill(agent.pid, SIGKILL);
  for (int i = 0; i < 10; ++i) {
    end_all_in(folder_);
    nap(0.02);
  }
  for (const Agent& agent : agents_)
    if (agent.pid > 0) ::waitpid(agent.pid, nullptr, 0);
  ::munmap(controls_, sizeof(FaultyControls));
}

void end_all_in(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::atoi(name.c_str());
    if (pid == ::getpid()) continue;
    std::string line = text_of(entry.path() / "cmdline");
    if (line.find(folder.string() + "/") != std::string::npos) ::kill(pid, SIGKILL);
  }
}

void CampaignRun::start() {
  for (int host = 0; host < case_.hosts; ++host) start_agent(host);
}

void CampaignRun::start_agent(int host) {
  Agent& agent = agents_[static_cast<std::size_t>(host)];
  std::vector<std::string> words;
  if (network_) words = network_->enter(host);
  words.insert(words.end(), {"env", "FAULTY_PROCESS=" + where("controls"),
                             "LD_PRELOAD=" + (fs::path(case_.program).parent_path() / "libfaulty_process.so").string(),
                             case_.program, "launch"});
  const std::vector<std::string> run = arguments_of(case_, folder_);
  words.insert(words.end(), run.begin(), run.end());
  words.insert(words.end(), {"--restarts", "100000", "--wait", "60"});
  if (case_.ranks_as == RanksAs::processes) words.push_back("--processes");
  if (case_.ranks_as == RanksAs::mpirun) words.push_back("--mpirun");
  if (case_.spares > 0) words.insert(words.end(), {"--spares", std::to_string(case_.spares)});
  const std::string rules = !case_.on_fault.empty() ? case_.on_fault : case_.shrinks ? "" : "restart,spare,wait";
  if (!rules.empty()) words.insert(words.end(), {"--on-fault", rules});
  if (network_)
    words.insert(words.end(), {"--hosts", fmt::format("{}", fmt::join(network_->names(), ",")), "--host",
                               network_->names()[static_cast<std::size_t>(host)]});
  if (agent.was_started) words.push_back("--resume");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string err = where(fmt::format("agent-{}.err", host)), out = where(fmt::format("agent-{}.out", host));
  agent = {.pid = ::fork(), .was_started = true};
  if (agent.pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600),
              to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (::dup2(to_out, 1) < 0 || ::dup2(to_err, 2) < 0) ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

void CampaignRun::tend() {
  if (stop_campaigns) throw std::runtime_error("the campaign was stopped");
  for (int host = 0; host < case_.hosts; ++host) {
    Agent& agent = agents_[static_cast<std::size_t>(host)];
    int status = 0;
    if (agent.pid > 0 && ::waitpid(agent.pid, &status, WNOHANG) == agent.pid) {
      agent.pid = -1;
      if (!agent.killed) code_ = std::max(code_, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    if (agent.pid < 0 && agent.back_at && SteadyClock::now() >= *agent.back_at) {
      // Where the others have ended the run meanwhile there is nothing left to come back to.
      const bool over = case_.hosts > 1 && !fs::exists(out_ / ".launch");
      agent.back_at.reset();
      if (!over) start_agent(host);
    }
  }
}

bool CampaignRun::ended() const {
  return std::ranges::all_of(agents_, [](const Agent& agent) { return agent.pid < 0 && !agent.back_at; });
}

void CampaignRun::kill_agent(int host, double seconds_until_back) {
  Agent& agent = agents_[static_cast<std::size_t>(host)];
  if (agent.pid <= 0) return;
  agent.killed = true;
  agent.back_at = SteadyClock::now() +
                  std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds_until_back));
  ::kill(agent.pid, SIGKILL);
}

std::int64_t CampaignRun::step() const {
  std::ifstream file(out_ / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  constexpr std::streamoff kTail = 16 << 10;
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kTail));
  const std::string tail{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = tail.rfind('\n');
  if (end == std::string::npos) return 0;
  const std::size_t at = tail.rfind("{\"step\":", end);
  return at == std::string::npos ? 0 : std::atoll(tail.c_str() + at + 8);
}

std::int64_t CampaignRun::newest_checkpoint() const {
  const std::string name = text_of(out_ / "checkpoints/latest");
  return name.starts_with("step-") ? std::atoll(name.c_str() + 5) : 0;
}

std::vector<std::int64_t> CampaignRun::checkpoints() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_ / "checkpoints", error))
    if (const std::string name = entry.path().filename(); name.starts_with("step-"))
      steps.push_back(std::atoll(name.c_str() + 5));
  std::ranges::sort(steps);
  return steps;
}

bool CampaignRun::is_saving() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_ / "checkpoints", error))
    if (entry.path().filename().string().starts_with(".partial-step-")) return true;
  return false;
}

std::map<int, pid_t> CampaignRun::ranks() const {
  std::map<int, pid_t> all;
  for (int rank = 0; rank < case_.ranks; ++rank) {
    try {
      const auto now = read_rank_now(out_ / fmt::format("ranks/rank-{:05}.now", rank));
      if (now && now->doing != DoingKind::ended && is_alive(static_cast<pid_t>(now->pid)))
        all[rank] = static_cast<pid_t>(now->pid);
    } catch (const UserError&) {
    }
  }
  return all;
}

int CampaignRun::host_of(int rank) const {
  if (!network_) return 0;
  try {
    if (const auto state = read_launch_state(launch_file(out_)))
      for (const LaunchedHost& host : state->hosts)
        if (std::ranges::find(host.ranks, rank) != host.ranks.end())
          for (int i = 0; i < case_.hosts; ++i)
            if (host_name(i) == host.name) return i;
  } catch (const UserError&) {
  }
  return -1;
}

std::vector<int> CampaignRun::ranks_of(int host) const {
  std::vector<int> all;
  for (const auto& [rank, pid] : ranks())
    if (host_of(rank) == host) all.push_back(rank);
  return all;
}

int CampaignRun::leader() const {
  if (!network_) return 0;
  return std::atoi(text_of(out_ / ".launch/leader").c_str());
}

pid_t CampaignRun::agent_of(int host) const { return agents_[static_cast<std::size_t>(host)].pid; }

std::string CampaignRun::host_name(int host) const {
  return network_ ? network_->names()[static_cast<std::size_t>(host)] : "";
}

CampaignEvents CampaignRun::events() const {
  CampaignEvents events;
  std::ifstream lines(out_ / "events.jsonl");
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"kind\":\"step\"") != std::string::npos) continue;
    nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("kind")) continue;
    const std::string kind = event["kind"];
    const bool of_agent = event["rank"].is_null();
    if (kind == "fault") (of_agent ? events.agent_faults : events.rank_faults).push_back(event);
    if (kind == "start" && event["rank"] == 0) events.starts.push_back(event);
    if (kind == "decision" && of_agent) {
      events.decisions.push_back(event);
      const std::string what = event.value("decision", "");
      events.layout_changed |= what == "shrink" || what == "grow";
    }
  }
  return events;
}

std::string CampaignRun::said() const {
  std::string all;
  for (int host = 0; host < case_.hosts; ++host) all += text_of(where(fmt::format("agent-{}.err", host)));
  return all;
}

}  // namespace lockstep::tests
