#include "cli/apart.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <sstream>
#include <thread>

#include "cli/agree.h"
#include "cli/rank_log.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/text_or_nothing.h"
#include "comm/gather_texts.h"
#include "comm/tcp/connect.h"
#include "plan/gathered_room.h"
#include "plan/plan.h"
#include "spec/run/async_check.h"
#include "spec/run/run_settings.h"
#include "telemetry/event_log.h"
#include "train/host_values.h"
#include "train/pinning.h"
#include "train/run_folder.h"
#include "train/start_agreement.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr double kLeastSeconds = 60;  // for servers to begin, or to have time between two saves

fs::path servers_file(const RunSpec& spec) { return fs::path(spec.run.out) / ".servers"; }

const char* from_environment(const char* name) { return std::getenv(name); }

apart::Parties parties_of(const apart::ApartMesh& mesh, int rank, Communicator* own) {
  return {.rank = rank, .size = mesh.size(), .of = [mesh](int r) { return mesh.party_of(r); }, .own = own};
}

struct Servers {
  tcp::WorldKeys keys;
  std::vector<apart::ServerAddress> addresses;
};

// Nothing: they have not begun.
std::optional<Servers> find_servers(const RunSpec& spec) {
  std::istringstream text(text_or_nothing(servers_file(spec)));
  std::string keys;
  if (!(text >> keys)) return std::nullopt;
  Servers found{.keys = tcp::WorldKeys::parse(keys), .addresses = {}};
  const int first = apart_mesh(spec.layout).first_server();
  for (apart::ServerAddress server{.rank = first}; text >> server.address >> server.port; ++server.rank)
    found.addresses.push_back(server);
  if (std::ssize(found.addresses) != spec.layout.servers) return std::nullopt;
  return found;
}

// Tried again, since what is written there may be of an earlier run, or the servers may be busy.
std::unique_ptr<apart::ServerLinks> connect(const RunSpec& spec, int rank, const std::string& settings,
                                            std::uint64_t life) {
  const double most = std::max(kLeastSeconds, spec.run.deadline);
  const auto until = control::Clock::now() + control::seconds(most);
  std::string problem = fmt::format("there is no {}", servers_file(spec).string());
  for (; control::Clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds(20))) try {
      const std::optional<Servers> servers = find_servers(spec);
      if (!servers) continue;
      return std::make_unique<apart::ServerLinks>(apart::ServerLinks::Options{.mesh = apart_mesh(spec.layout),
                                                                              .rank = rank,
                                                                              .keys = servers->keys,
                                                                              .addresses = servers->addresses,
                                                                              .settings = settings,
                                                                              .life = life});
    } catch (const CommError& error) {
      problem = error.what();
    }
  throw CommError(fmt::format("rank {} has found no parameter servers within {:.0f} s: {}", rank, most, problem));
}

// As many bits as a double keeps whole, the same on all ranks of the worker.
std::uint64_t make_life(Communicator* party) {
  std::random_device random;
  std::int64_t life = static_cast<std::int64_t>((std::uint64_t{random()} << 20) ^ random());
  if (party) party->broadcast(Tensor(&life, DType::i64, Device::cpu, {1}), 0)->wait();
  return static_cast<std::uint64_t>(life);
}

// The run's own events are the first server's to write.
void tell_end(const RunSpec& spec, int rank, std::int64_t step, const std::string& why) {
  append_event(fs::path(spec.run.out) / "events.jsonl", {.time = seconds_since_1970(),
                                                         .rank = rank,
                                                         .kind = EventKind::fault,
                                                         .step = step,
                                                         .text = why,
                                                         .decision = Decision::go_on,
                                                         .culprit = rank});
  log_end_of_rank(spec.run.out, rank, why);
}

void work(const RunSpec& spec, const LaunchedProcess& place, const RunData& data, const std::string& settings,
          Communicator* party) {
  const auto links = connect(spec, place.rank, settings, make_life(party));
  const auto mesh = apart::make_ranks(parties_of(apart_mesh(spec.layout), place.rank, party), *links);
  const int threads =
      spec.run.threads > 0 ? static_cast<int>(spec.run.threads) : std::max(1, usable_cores() / ranks_of_host());
  if (spec.run.pin) take_share_of_cores(place.local_rank, std::max(ranks_of_host(), place.local_rank + 1));
  ProcessHeartbeat heartbeat;
  TrainingRun run(spec, Device::cpu, fs::path(spec.run.out) / "checkpoints",
                  {.ranks = party, .mesh = mesh.get(), .threads = threads, .data = &data, .data_of_rank = true});
  run.replica().resume(0, 0);  // the weights come with the first ticket
  heartbeat.add(run);
  const std::atomic<bool>& stop = listen_for_signals(spec.run.stop_signals);
  if (party) party->barrier()->wait();  // all of its ranks are connected
  links->join();
  try {
    run.serve([&] { return stop.load(); });
  } catch (const std::exception& error) {
    const auto* of_another = dynamic_cast<const CommError*>(&error);
    if (!(of_another && of_another->secondary()))
      tell_end(spec, place.rank, run.doing() ? run.doing()->own().step : 0, error.what());
    throw;
  }
}

}  // namespace

LaunchedProcess apart_place(const RunSpec& spec) {
  const auto place = launched_process(from_environment);
  if (!place)
    throw UserError(ExitCode::usage, "--apart is for processes that `lockstep launch` starts",
                    "use lockstep launch --processes");
  if (const std::string why = why_workers_may_not_die(spec); !why.empty())
    throw UserError(ExitCode::usage, fmt::format("--apart: no worker may die, since {}", why), "leave --apart out");
  return *place;
}

apart::ApartMesh apart_mesh(const LayoutSpec& layout) {
  return {.workers = static_cast<int>(layout.dp),
          .line = static_cast<int>(layout.line()),
          .servers = static_cast<int>(layout.servers)};
}

std::string apart_settings(const RunSpec& spec, const RunData& data) {
  std::string all = program_version();
  for (const auto& named : {settings_alike(spec), content_of(data)})
    for (const auto& [name, value] : named) all += fmt::format("\n{} = {}", name, value);
  return fmt::format("{:016x}", checksum(std::as_bytes(std::span(all))));
}

ApartServer::ApartServer(const RunSpec& spec, const std::string& settings, Communicator& party)
    : file_(servers_file(spec)) {
  const apart::ApartMesh mesh = apart_mesh(spec.layout);
  const int rank = mesh.first_server() + party.rank();
  const char* const master = from_environment("MASTER_ADDR");
  const std::string first = master ? master : "127.0.0.1";
  std::string keys = party.rank() == 0 ? tcp::WorldKeys::make().text() : "";
  if (party.size() > 1) share_text(party, keys, 0);
  auto acceptor = std::make_unique<apart::Acceptor>(party.rank() == 0 ? first : tcp::address_towards(first),
                                                    tcp::WorldKeys::parse(keys), rank, settings);
  const std::string mine = fmt::format("{} {}\n", acceptor->address(), acceptor->port());
  std::string text = keys + "\n";
  if (party.size() > 1)
    for (const std::string& one : gather_texts(party, mine)) text += one;
  else
    text += mine;
  links_ = std::make_unique<apart::WorkerLinks>(mesh, rank, std::move(acceptor), spec.run.deadline);
  mesh_ = apart::make_ranks(parties_of(mesh, rank, party.size() > 1 ? &party : nullptr), *links_);
  if (party.rank() != 0) return;
  write_for_us(file_, text);
  written_ = std::move(text);
}

ApartServer::~ApartServer() {
  if (!written_.empty() && text_or_nothing(file_) == written_) ::unlink(file_.c_str());
}

int run_worker(RunSpec spec, const LaunchedProcess& place) {
  if (place.ranks != spec.layout.ranks())
    throw UserError(ExitCode::usage,
                    fmt::format("WORLD_SIZE is {} for a layout of {} ranks", place.ranks, spec.layout.ranks()),
                    "let `lockstep launch` start the ranks");
  std::signal(SIGPIPE, SIG_IGN);
  listen_for_signals(spec.run.stop_signals);
  const RunData data(spec);
  const std::string settings = apart_settings(spec, data);
  // Servers alone save.
  spec.train.save_every = 0;
  spec.train.save_last = false;
  spec.train.backup.clear();
  resolve_gathered(spec, available_memory(Device::cpu) / ranks_of_host());
  const int line = static_cast<int>(spec.layout.line()), worker = place.rank / line;
  if (line == 1) {
    work(spec, place, data, settings, nullptr);
    return 0;
  }
  LaunchedProcess own = place;
  own.rank = place.rank % line;
  own.ranks = line;
  ProcessWorld world(own, {.folder = spec.run.out,
                           .deadline_seconds = spec.run.deadline,
                           .device = Device::cpu,
                           .control = fmt::format(".control-worker-{}", worker),
                           .open = nullptr});
  world.run([&](Communicator& party, const TrainingRun::Connect&) { work(spec, place, data, settings, &party); });
  return 0;
}

}  // namespace lockstep
