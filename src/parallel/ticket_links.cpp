#include "parallel/ticket_links.h"

#include <algorithm>
#include <utility>

#include "comm/wait_policy.h"

namespace lockstep {

namespace {
constexpr std::int64_t kArrivalWords = 3;  // worker, ticket, version
// Seconds: what the first of a group tells the others comes when a worker is done, or when there is one again. A rank
// that has died is seen before.
constexpr double kLongestTicket = 86'400;

void hear_from_first(Communicator& group, const Tensor& words) {
  group.start({.op = CommOp::broadcast, .out = words, .in = words, .peer = 0, .deadline = kLongestTicket})->wait();
}
}  // namespace

TicketLinks::TicketLinks(Communicator& world, const LayoutSpec& layout)
    : layout_(layout),
      first_server_(world.rank() == static_cast<int>(layout.dp * layout.line())),
      serves_(layout.serves(world.rank())),
      tickets_(world.split([](int r) { return Place{.color = 0, .key = r}; }, "tickets")) {
  const int line = static_cast<int>(layout.line()), computing = static_cast<int>(layout.dp) * line;
  if (line > 1)
    replica_ = world.split([=](int r) { return Place{.color = r < computing ? r / line : -1, .key = r}; }, "replica");
  if (layout.servers > 1)
    servers_ = world.split([=](int r) { return Place{.color = r < computing ? -1 : 0, .key = r}; }, "servers");
  if (first_server_) workers_.resize(static_cast<std::size_t>(layout.dp));
}

TicketLinks::~TicketLinks() = default;

Tensor TicketLinks::tensor(double* words, std::int64_t count) const {
  return Tensor(words, DType::f64, tickets_->device(), {count});
}

std::vector<double> TicketLinks::words_of(const TicketNotice& n) const {
  std::vector<double> words{static_cast<double>(n.kind),
                            static_cast<double>(n.worker),
                            static_cast<double>(n.ticket),
                            static_cast<double>(n.pulls),
                            n.loss,
                            n.norm,
                            static_cast<double>(n.updated),
                            static_cast<double>(n.meets),
                            static_cast<double>(n.updates),
                            n.seconds};
  words.push_back(n.arrivals.empty() ? -1 : static_cast<double>(n.arrivals.front().update));
  for (const Arrival& one : n.arrivals)
    words.insert(words.end(),
                 {static_cast<double>(one.worker), static_cast<double>(one.ticket), static_cast<double>(one.version)});
  words.resize(static_cast<std::size_t>(kNoticeWords + kArrivalWords * layout_.dp));
  return words;
}

TicketNotice TicketLinks::notice_of(const std::vector<double>& w) const {
  TicketNotice notice{.kind = static_cast<TicketNotice::Kind>(w[0]),
                      .worker = static_cast<int>(w[1]),
                      .ticket = static_cast<std::int64_t>(w[2]),
                      .pulls = w[3] != 0,
                      .loss = w[4],
                      .norm = w[5],
                      .updated = w[6] != 0,
                      .meets = w[7] != 0,
                      .updates = static_cast<std::int64_t>(w[8]),
                      .seconds = w[9]};
  for (std::int64_t i = 0; i < layout_.dp && w[10] >= 0; ++i) {
    const auto at = static_cast<std::size_t>(kNoticeWords + kArrivalWords * i);
    notice.arrivals.push_back({.update = static_cast<std::int64_t>(w[10]) + i,
                               .worker = static_cast<std::int64_t>(w[at]),
                               .ticket = static_cast<std::int64_t>(w[at + 1]),
                               .version = static_cast<std::int64_t>(w[at + 2])});
  }
  return notice;
}

TicketNotice TicketLinks::hear() {
  std::vector<double> words = words_of({});
  const Tensor all = tensor(words.data(), std::ssize(words));
  if (serves_) {
    hear_from_first(*servers_, all);
    return notice_of(words);
  }
  if (!replica_ || replica_->rank() == 0) tickets_->recv(all, static_cast<int>(layout_.dp * layout_.line()))->wait();
  if (replica_) hear_from_first(*replica_, all);
  return notice_of(words);
}

void TicketLinks::ask(const TicketRequest& request) {
  // Any of the replica's ranks may wish to meet.
  std::array<double, kRequestWords> words{request.losses, static_cast<double>(request.targets),
                                          static_cast<double>(request.wants_meeting)};
  if (replica_) replica_->all_reduce(tensor(&words[2], 1))->wait();
  if (!replica_ || replica_->rank() == 0)
    tickets_->send(tensor(words.data(), kRequestWords), static_cast<int>(layout_.dp * layout_.line()))->wait();
}

void TicketLinks::expect(int worker) {
  OfWorker& of = workers_[static_cast<std::size_t>(worker)];
  of.asked = tickets_->recv(tensor(of.request.data(), kRequestWords), lead(worker));
}

TicketLinks::Asked TicketLinks::wait_for_request() {
  waiting::Backoff backoff = waiting::wrapper_backoff();
  LOCKSTEP_CHECK(std::ranges::any_of(workers_, [](const OfWorker& of) { return of.asked != nullptr; }),
                 "no worker is computing");
  for (;; backoff.pause())
    if (const auto asked = take_request([](int) { return false; })) return *asked;
}

std::optional<TicketLinks::Asked> TicketLinks::take_request(const std::function<bool(int worker)>& lost) {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    const OfWorker& of = workers_[worker];
    if (of.asked && of.asked->done() && !lost(static_cast<int>(worker))) return take(static_cast<int>(worker));
  }
  return std::nullopt;
}

TicketLinks::Asked TicketLinks::take(int worker) {
  OfWorker& of = workers_[static_cast<std::size_t>(worker)];
  std::exchange(of.asked, nullptr)->wait();
  return {worker,
          {.losses = of.request[0],
           .targets = static_cast<std::int64_t>(of.request[1]),
           .wants_meeting = of.request[2] != 0,
           .likeliest = static_cast<std::int64_t>(of.request[2])}};
}

void TicketLinks::forget(int worker) {
  OfWorker& of = workers_[static_cast<std::size_t>(worker)];
  of.asked.reset();
  of.told.reset();
}

bool TicketLinks::all_servers(bool say) {
  if (!servers_) return say;
  double against = say ? 0 : 1;
  servers_->all_reduce(tensor(&against, 1))->wait();
  return against == 0;
}

void TicketLinks::tell_share(const TicketRequest& share) {
  if (replica_ && replica_->rank() != 0) return;
  std::array<double, kRequestWords> words{share.losses, static_cast<double>(share.targets),
                                          static_cast<double>(share.likeliest)};
  tickets_->send(tensor(words.data(), kRequestWords), static_cast<int>(layout_.dp * layout_.line()))->wait();
}

void TicketLinks::tell(int worker, const TicketNotice& notice) {
  OfWorker& of = workers_[static_cast<std::size_t>(worker)];
  if (of.told) of.told->wait();
  of.notice = words_of(notice);
  of.told = tickets_->send(tensor(of.notice.data(), std::ssize(of.notice)), lead(worker));
}

void TicketLinks::tell_servers(const TicketNotice& notice) {
  if (!servers_) return;
  std::vector<double> words = words_of(notice);
  servers_->broadcast(tensor(words.data(), std::ssize(words)), 0)->wait();
}

void TicketLinks::settle() {
  for (OfWorker& of : workers_) {
    if (of.told) of.told->wait();
    of.told.reset();
  }
}

}  // namespace lockstep
