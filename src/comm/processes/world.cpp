#include "comm/processes/world.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "comm/processes/engine.h"
#include "comm/processes/member.h"
#include "tensor/cpu/heap.h"
#include "tensor/cpu/stream.h"

namespace lockstep::processes {

namespace {

std::string own_host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::vector<std::string> texts_of(const std::vector<int>& numbers) {
  std::vector<std::string> texts;
  for (const int number : numbers) texts.push_back(std::to_string(number));
  return texts;
}

}  // namespace

struct World::State {
  State(ProcessOptions wanted, Start begin) : options(std::move(wanted)), start(std::move(begin)) {}
  ~State() { transport.reset(); }  // its thread may use all of the rest

  void run();  // the progress thread
  void connect();
  void await_start();
  std::unique_ptr<SharedFiles> open_files(const Placement& placement);
  void idle_sleep(bool busy, int& idle);

  const ProcessOptions options;
  const Start start;
  Ledger ledger;
  cpu::Heap heap{ledger};
  cpu::Stream stream{heap, 1};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<HostWindow> host;
  std::unique_ptr<Engine> engine;
  int hosts = 1, local_rank = 0;
  bool sees = false;
  bool given = false;

  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false, finished = false;
  std::exception_ptr problem;
  std::atomic<bool> stop = false;
  std::thread thread;
};

// Who is where, and the memory that this host's ranks share.
void World::State::connect() {
  transport = start.transport();
  const int rank = transport->rank(), size = transport->size();
  const auto check = [](bool ok, const std::string& problem, const std::string& remedy) {
    if (!ok) throw UserError(ExitCode::usage, problem, remedy);
  };
  check(size <= kMostSummands, fmt::format("{} ranks", size), fmt::format("start at most {}", kMostSummands));
  check(options.hosts.empty() || static_cast<int>(options.hosts.size()) == size,
        fmt::format("{} hosts are given for {} ranks", options.hosts.size(), size), "give one for each rank, or none");
  check(options.slot_bytes >= 256 * (size + 1) && options.slot_bytes % 256 == 0,
        fmt::format("slots of {} bytes for {} ranks", options.slot_bytes, size),
        fmt::format("give a multiple of 256, at least {}", 256 * (size + 1)));

  std::random_device random;
  const std::string name = fmt::format("/lockstep-{}-{:08x}{:08x}", getpid(), random(), random());
  const std::vector<std::string> names = transport->gather(name);
  const std::vector<std::string> host_names = transport->gather(own_host_name());
  Engine::World world{rank, options.hosts, {}, options.slot_bytes, options.least_seen, options.deadline_seconds};
  if (world.hosts.empty())
    for (const std::string& host_name : host_names)
      world.hosts.push_back(
          static_cast<int>(std::find(host_names.begin(), host_names.end(), host_name) - host_names.begin()));
  const RankHosts places{world.hosts, options.hosts.empty() ? host_names : texts_of(options.hosts)};
  const Placement placement(world.hosts, rank);
  for (int r = 0; r < size; ++r) world.process_slots.push_back(placement.local_rank(r));
  hosts = placement.hosts();
  local_rank = placement.local_rank(rank);

  // The leader makes it; "" from anyone says that it went well, so that nobody waits for who has failed.
  const int leader = placement.leader(placement.mine()), here = static_cast<int>(placement.local_ranks().size());
  std::string problem_here;
  const auto attempt = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      problem_here = fmt::format("rank {}: {}", rank, error.what());
    }
    for (const std::string& other : transport->gather(problem_here))
      if (!other.empty()) throw EnvironmentError(other);
  };
  const std::string& shared = names[static_cast<std::size_t>(leader)];
  attempt([&] {
    if (leader == rank) host = std::make_unique<HostWindow>(shared, here, true);
  });
  attempt([&] {
    if (leader != rank) host = std::make_unique<HostWindow>(shared, here, false);
    host->process_slot(local_rank).process.store(getpid());
    transport->set_wakeup(host->process_slot(local_rank).wakeup);
  });
  if (leader == rank) host->unlink_name();
  std::unique_ptr<SharedFiles> files = open_files(placement);
  sees = files != nullptr;
  engine = std::make_unique<Engine>(std::move(world), *host, *transport, stream, std::move(files));
  if (hosts == 1) return;
  transport->listen([this](const FailureNotice& notice) { engine->handle(notice); });
  attempt([&] { transport->connect(places); });
}

// This process's file and its host's others'; null on all ranks alike where one of them is refused any. What refuses is
// another user, another namespace of processes, a system without such files: slots are slower, but no worse.
std::unique_ptr<SharedFiles> World::State::open_files(const Placement& placement) {
  auto files = std::make_unique<SharedFiles>();
  const auto attempt = [](const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const EnvironmentError&) {
      return false;
    }
  };
  bool well = attempt([&] { files->own = std::make_shared<SharedFile>(); });
  const std::vector<std::string> addresses = transport->gather(well ? files->own->address() : "");
  well = well && options.see_tensors && attempt([&] {
           for (const int rank : placement.local_ranks())
             files->others.push_back(rank == transport->rank() ? nullptr : std::make_unique<PeerFile>(addresses[rank]));
         });
  for (const std::string& other : transport->gather(well ? "well" : ""))
    if (other.empty()) return nullptr;
  return files;
}

void World::State::idle_sleep(bool busy, int& idle) {
  using namespace std::chrono_literals;
  Wakeup& wakeup = engine->wakeup();
  // Messages under way want the transport to be asked often; but many ranks may share few cores.
  constexpr int kEager = 50;
  idle = busy ? idle + 1 : 0;
  if (busy && idle < kEager) return std::this_thread::yield();
  const auto most = busy                                  ? Clock::duration(50us)
                    : hosts > 1 && transport->is_polled() ? Clock::duration(2ms)
                                                          : Clock::duration(50ms);
  sleep_on(wakeup.progress_signals, wakeup.progress_signals.load(), wakeup.progress_asleep, most);
}

void World::State::run() {
  const auto say = [&](bool State::*what) {
    const std::lock_guard lock(mutex);
    this->*what = true;
    changed.notify_all();
  };
  // A write to a process that is gone is an error of a call, not the end of this process. What is blocked here is
  // blocked in the threads that the transport starts.
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
  try {
    connect();
  } catch (...) {
    problem = std::current_exception();
    return say(&State::ready);
  }
  say(&State::ready);
  Wakeup& wakeup = engine->wakeup();
  std::uint32_t seen = 0;
  int idle = 0;
  bool more = false;
  Clock::time_point looked{};
  while (!stop) {
    try {
      const std::uint32_t calls = wakeup.progress_signals.load();
      const bool busy = transport->poll();
      const auto now = Clock::now();
      host->process_slot(local_rank).last_ran.store(now.time_since_epoch().count());
      if (std::exchange(more, false) || calls != seen || now - looked > std::chrono::milliseconds(50)) {
        if (wakeup.has_waiter.load() == 0 || now - looked > std::chrono::milliseconds(50)) {
          more = engine->serve();
          looked = now;
        }
        seen = calls;
      }
      if (!more && wakeup.progress_signals.load() == seen) idle_sleep(busy, idle);
    } catch (const std::exception& error) {
      engine->abort({fmt::format("rank {}: {}", transport->rank(), error.what())});
      break;
    }
  }
  // What is under way after a failure may never end, and an end in good order would wait for it.
  const auto until = Clock::now() + std::chrono::milliseconds(200);
  try {
    while (transport->poll(), !transport->idle() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (transport->idle() && engine->gone() < 0 && !host->header().aborted.failed()) transport->finalize();
  } catch (const std::exception&) {  // it was failing already
  }
  say(&State::finished);
}

std::int64_t World::group_bytes(int ranks, int hosts, int here, const ProcessOptions& options) {
  return GroupWindow::bytes({ranks, hosts, here, options.slot_bytes});
}

// The start is in the progress thread, where nothing can end it: whoever does not come is noticed here.
void World::State::await_start() {
  const double most = std::max(options.deadline_seconds, options.least_start_seconds);
  const auto until = waiting::deadline_in(most);
  Clock::duration pause = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, pause, [&] { return ready; })) {
    start.check();
    if (start.late && Clock::now() >= until) throw CommError(start.late(most));
    pause = std::min<Clock::duration>(2 * pause, std::chrono::milliseconds(200));
  }
}

World::World(ProcessOptions options, Start start)
    : state_(std::make_unique<State>(std::move(options), std::move(start))) {
  State& state = *state_;
  state.thread = std::thread([&state] { state.run(); });
  try {
    state.await_start();
  } catch (const std::exception&) {  // the thread that waits, and what it uses, are left to the exit
    state.thread.detach();
    state_.release();
    throw;
  }
  if (!state.problem) return;
  state.thread.join();
  std::rethrow_exception(state.problem);
}

World::~World() {
  State& state = *state_;
  state.host->process_slot(state.local_rank).ended.store(1);
  for (int slot = 0; slot < state.host->processes(); ++slot) state.host->process_slot(slot).wakeup.notify();
  state.stop = true;
  state.engine->wakeup().notify_progress();
  std::unique_lock lock(state.mutex);
  // After a failure the thread has what it takes to tell the others, and no more: it does not finalize, but MPI may
  // hold it for seconds where it tries to reach a process that is gone.
  const auto begin = Clock::now();
  const auto failed = [&] { return state.host->header().aborted.failed() || state.engine->gone() >= 0; };
  const auto most = [&] { return waiting::seconds(failed() ? 0.5 : state.options.deadline_seconds); };
  while (!state.finished && Clock::now() < begin + most())
    state.changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return state.finished; });
  const bool finished = state.finished;
  lock.unlock();
  if (finished) {
    state.thread.join();
    return;
  }
  // The others have not come to the end. The thread that waits there, and what it uses, are left to the exit.
  if (!failed())
    fmt::print(stderr, "rank {}: the other ranks have not ended within {} s; this one ends without them\n", rank(),
               state.options.deadline_seconds);
  state.thread.detach();
  state_.release();
}

int World::rank() const { return state_->transport->rank(); }
int World::size() const { return state_->transport->size(); }
int World::hosts() const { return state_->hosts; }
int World::local_rank() const { return state_->local_rank; }
int World::local_size() const { return state_->host->processes(); }
bool World::sees_tensors() const { return state_->sees; }

std::unique_ptr<Communicator> World::communicator() {
  LOCKSTEP_CHECK(!std::exchange(state_->given, true), "rank {} has its communicator of the world already", rank());
  std::vector<int> members(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) members[static_cast<std::size_t>(r)] = r;
  constexpr std::uint64_t kWorldKey = 0x77'6f'72'6c'64;
  return member_of(*state_->engine, state_->engine->open({"world", std::move(members), rank(), kWorldKey}, nullptr));
}

void World::abort(const CommFailure& failure) { state_->engine->abort(failure); }

}  // namespace lockstep::processes
