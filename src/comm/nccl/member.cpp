#include "comm/nccl/member.h"

#include <algorithm>
#include <cstring>

#include "comm/failure_text.h"

namespace lockstep::nccl {

namespace {
class OperationHandle final : public Pending {
 public:
  OperationHandle(Member& member, std::shared_ptr<Operation> operation)
      : member_(member), operation_(std::move(operation)) {}
  ~OperationHandle() override {
    if (!waited_) member_.order_on_drop(*operation_);
  }
  bool done() override { return member_.test(*operation_); }
  void wait() override {
    waited_ = true;
    member_.order(*operation_);
  }
  std::string waits_for() override { return operation_->title; }

 private:
  Member& member_;
  std::shared_ptr<Operation> operation_;
  bool waited_ = false;
};

}  // namespace

Member::Member(const Resources& resources, const Id& id, const Membership& place)
    : Communicator(place.rank, place.ranks, place.name, resources.compute.device()),
      resources_(resources),
      staging_(
          resources.memory.allocate(staging_bytes(place.ranks, resources.options), Tag::communication, place.name)),
      counts_(2 * place.ranks * std::int64_t{8}, resources.compute) {
  std::unique_ptr<Link> link;
  if (size() > 1) link = resources_.library.connect({id, rank(), size(), name(), resources_.options.deadline_seconds});
  collectives_ = std::make_unique<InFlightOperations>(std::move(link), device());
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  if (size() == 1) return;
  std::vector<Id> mine;
  for (int to = 0; to < size() && size() <= kMostPeers; ++to)
    mine.push_back(to == rank() ? Id{} : resources_.library.make_id());
  if (mine.empty()) mine.resize(1);  // too many for pairs: connects, and no more
  const std::vector<char> all = gather_bytes({mine.data()->data(), mine.size() * sizeof(Id)}, "set-up");
  pair_ids_.resize(all.size() / sizeof(Id));
  std::memcpy(pair_ids_.data(), all.data(), all.size());
}

Communicator::Started Member::start(const Message& message) {
  check_message(message, rank(), size(), device());
  const std::string title = operation_title(sequence_.next(message), name(), message, size());
  const Lock lock(mutex_);
  guarded([&] { advance(); });
  throw_failure();
  InFlightOperations& in_flight = point_to_point(message.op) ? pair(message) : *collectives_;
  std::vector<Step> steps;
  if (point_to_point(message.op)) {
    if (count_of(message, size()) > 0)
      steps.push_back([message, &in_flight] {  // the sender is rank 0 of the two
        if (message.op == CommOp::send)
          in_flight.link().send(message.in, 1, in_flight.stream());
        else
          in_flight.link().recv(message.out, 0, in_flight.stream());
        return true;
      });
  } else if (size() > 1) {
    steps = steps_of(message, {rank(), size(), in_flight, staging_, counts_});
  } else {
    for (const Message& pair : pairs_of(message))
      if (pair.in && pair.out && pair.in.raw() != pair.out.raw())
        steps.push_back([pair, &in_flight] {
          copy_later(pair.out.raw(), pair.in.raw(), pair.in.bytes(), in_flight.stream());
          return true;
        });
  }
  const double deadline = message.deadline > 0 ? message.deadline : resources_.options.deadline_seconds;
  return std::make_unique<OperationHandle>(*this, begin(in_flight, {title, std::move(steps), deadline}));
}

// To begin after what the compute stream was given so far; gives it to the link's stream as far as possible now.
std::shared_ptr<Operation> Member::begin(InFlightOperations& in_flight, Work work) {
  Stream& compute = resources_.compute;
  auto operation = std::make_shared<Operation>(Operation{.title = std::move(work.title),
                                                         .deadline = work.deadline,
                                                         .steps = std::move(work.steps),
                                                         .ready = compute.make_event(),
                                                         .begun = compute.make_event(),
                                                         .ended = compute.make_event()});
  compute.record(*operation->ready);
  in_flight.add(operation);
  guarded([&] { advance(); });
  news_ = true;
  wake_.notify_all();
  return operation;
}

InFlightOperations& Member::pair(const Message& message) {
  if (size() > kMostPeers)
    throw UserError(ExitCode::usage,
                    fmt::format("{} in '{}', a group of {} ranks over NCCL", name_of(message.op), name(), size()),
                    fmt::format("split a group of at most {} ranks for it", kMostPeers));
  std::unique_ptr<InFlightOperations>& in_flight = pairs_[{message.op, message.peer}];
  if (in_flight) return *in_flight;
  const bool sends = message.op == CommOp::send;
  const int from = sends ? rank() : message.peer, to = sends ? message.peer : rank();
  in_flight = std::make_unique<InFlightOperations>(
      resources_.library.connect({pair_ids_[static_cast<std::size_t>(from * size() + to)], sends ? 0 : 1, 2,
                                  fmt::format("{} {}-{}", name(), from, to), resources_.options.deadline_seconds}),
      device());
  return *in_flight;
}

std::unique_ptr<Communicator> Member::split(const std::function<Place(int)>& place, const std::string& name) {
  const std::vector<int> members = members_of(rank(), size(), place);
  const bool in_none = place(rank()).color < 0;
  Id mine{};
  if (!in_none && members[0] == rank()) mine = resources_.library.make_id();
  std::vector<char> all(mine.begin(), mine.end());
  if (size() > 1) all = gather_bytes(mine, fmt::format("splitting '{}'", name));
  if (in_none) return nullptr;
  Id id{};
  std::memcpy(id.data(), all.data() + members[0] * static_cast<std::ptrdiff_t>(id.size()), id.size());
  const auto at = std::find(members.begin(), members.end(), rank()) - members.begin();
  return std::make_unique<Member>(resources_, id,
                                  Membership{static_cast<int>(at), static_cast<int>(members.size()), name});
}

// Everybody's bytes, as many of each, by rank; over the group itself. The host waits.
std::vector<char> Member::gather_bytes(std::span<const char> mine, const std::string& what) {
  const auto each = static_cast<std::int64_t>(mine.size()), words = each / 4;
  const HostBuffer host(each * size(), resources_.compute);
  std::memcpy(host.as<char>().data() + each * rank(), mine.data(), mine.size());
  const Tensor all = view(staging_, DType::i32, {words * size()}), part = all.slice(0, words * rank(), words);
  Lock lock(mutex_);
  throw_failure();
  InFlightOperations& in_flight = *collectives_;
  const auto upload = [&] {
    upload_later(part, host.as<char>().data() + each * rank(), in_flight.stream());
    in_flight.link().all_gather(all, part, in_flight.stream());
    return true;
  };
  const auto download = [&] {
    download_later(host.as<char>().data(), all, in_flight.stream());
    return true;
  };
  const auto operation = begin(
      in_flight, {fmt::format("{} of '{}'", what, name()), {upload, download}, resources_.options.deadline_seconds});
  wait_on_host(*operation, lock, [&] { return operation->issued && operation->ended->done(); });
  return {host.as<char>().begin(), host.as<char>().end()};
}

}  // namespace lockstep::nccl
