#include "comm/mpi/wire.h"

#include <cstring>

#include "comm/mpi/wire_state.h"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kNoticeBytes = 3200;

std::vector<char> packed(const Notice& notice) {
  std::vector<char> bytes(kNoticeBytes);
  std::memcpy(bytes.data(), &notice.group, 8);
  bytes[8] = notice.secondary;
  const std::size_t n = std::min(notice.words.size(), kNoticeBytes - 10);
  std::memcpy(bytes.data() + 9, notice.words.data(), n);
  return bytes;
}

Notice unpacked(const std::vector<char>& bytes) {
  Notice notice;
  std::memcpy(&notice.group, bytes.data(), 8);
  notice.secondary = bytes[8] != 0;
  notice.words = bytes.data() + 9;  // the last byte is a zero
  return notice;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, words, &length);
  throw EnvironmentError(fmt::format("{}: {}", call, std::string(words, static_cast<std::size_t>(length))));
}

Wire::Wire() : state_(std::make_unique<State>()) {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw EnvironmentError("this MPI allows no threads in the program; use one built with thread support");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Wire::~Wire() = default;

std::vector<std::string> Wire::gather(const std::string& mine) {
  constexpr int kMost = 256;
  std::vector<char> all(static_cast<std::size_t>(size_ * kMost));
  std::string own = mine.substr(0, kMost - 1);
  own.resize(kMost);
  check_mpi(MPI_Allgather(own.data(), kMost, MPI_CHAR, all.data(), kMost, MPI_CHAR, MPI_COMM_WORLD), "MPI_Allgather");
  std::vector<std::string> words;
  for (int rank = 0; rank < size_; ++rank) words.emplace_back(all.data() + rank * kMost);
  return words;
}

void Wire::listen(std::function<void(const Notice&)> hear) {
  hear_ = std::move(hear);
  state_->heard.resize(kNoticeBytes);
  check_mpi(MPI_Irecv(state_->heard.data(), kNoticeBytes, MPI_CHAR, MPI_ANY_SOURCE, kNotices, MPI_COMM_WORLD,
                      &state_->listening),
            "MPI_Irecv");
}

std::shared_ptr<Ticket> Wire::queue(Wanted wanted) {
  std::shared_ptr<Ticket> ticket = wanted.ticket;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(wanted));
  }
  bell_->call();
  return ticket;
}

std::shared_ptr<Ticket> Wire::post(std::vector<Transfer> transfers, std::shared_ptr<void> holds) {
  auto ticket = std::make_shared<Ticket>();
  ticket->left = static_cast<int>(transfers.size());
  ticket->holds = std::move(holds);
  if (transfers.empty()) return ticket;
  return queue({std::move(transfers), {}, ticket});
}

void Wire::tell(const std::vector<int>& ranks, const Notice& notice) {
  const auto bytes = std::make_shared<std::vector<char>>(packed(notice));
  std::vector<Transfer> transfers;
  for (const int rank : ranks) transfers.push_back({Transfer::Way::send, bytes->data(), kNoticeBytes, rank, kNotices});
  post(std::move(transfers), bytes);
}

bool Wire::poll() {
  for (;;) {
    Wanted wanted;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) break;
      wanted = std::move(queue_.front());
      queue_.pop_front();
    }
    if (wanted.native) wanted.native(*state_);
    for (const Transfer& t : wanted.transfers) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int bytes = static_cast<int>(t.bytes);
      if (t.way == Transfer::Way::receive)
        check_mpi(MPI_Irecv(t.data, bytes, MPI_BYTE, t.peer, t.tag, MPI_COMM_WORLD, &request), "MPI_Irecv");
      else
        check_mpi(MPI_Isend(t.data, bytes, MPI_BYTE, t.peer, t.tag, MPI_COMM_WORLD, &request), "MPI_Isend");
      state_->requests.push_back(request);
      state_->tickets.push_back(wanted.ticket);
    }
  }
  if (state_->listening != MPI_REQUEST_NULL) {
    int came = 0;
    check_mpi(MPI_Test(&state_->listening, &came, MPI_STATUS_IGNORE), "MPI_Test");
    if (came) {
      const Notice notice = unpacked(state_->heard);
      listen(hear_);
      hear_(notice);
    }
  }
  if (state_->requests.empty()) return false;
  int count = 0;
  std::vector<int> which(state_->requests.size());
  check_mpi(
      MPI_Testsome(static_cast<int>(which.size()), state_->requests.data(), &count, which.data(), MPI_STATUSES_IGNORE),
      "MPI_Testsome");
  if (count <= 0) return true;
  bool rings = false;
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<Ticket>& ticket = state_->tickets[static_cast<std::size_t>(which[static_cast<std::size_t>(i)])];
    rings |= ticket->left.fetch_sub(1, std::memory_order_acq_rel) == 1;
    ticket.reset();
  }
  std::erase(state_->requests, MPI_REQUEST_NULL);
  std::erase(state_->tickets, nullptr);
  if (rings) bell_->ring();
  return true;
}

bool Wire::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && state_->requests.empty();
}

void Wire::finalize() {
  if (state_->listening != MPI_REQUEST_NULL) {
    MPI_Cancel(&state_->listening);
    MPI_Request_free(&state_->listening);
  }
  for (auto& [key, comm] : state_->groups) MPI_Comm_free(&comm);
  MPI_Finalize();
}

}  // namespace lockstep::mpi
